! SPDX-License-Identifier: Apache-2.0
! A Global Arrays program in Fortran: create, put, get, accumulate, access by index, a matrix product.
#ifndef SIZE
#define SIZE 120
#endif
program ga_fortran
  implicit none
#include "mafdecls.fh"
#include "global.fh"
  include 'mpif.h'
  integer, parameter :: n = SIZE
  integer :: a, b, c, me, nproc, i, j, lo(2), hi(2), index, ld, wrong(1)
  integer*4 :: ierr
  logical :: ok
  double precision :: column(n), want

  call mpi_init(ierr)
  call ga_initialize()
  me = ga_nodeid()
  nproc = ga_nnodes()
  ok = ma_init(mt_dbl, 500000, 500000)
  wrong(1) = 0
  ok = ok .and. ga_create(mt_dbl, n, n, 'a', 0, 0, a)
  ok = ok .and. ga_duplicate(a, b, 'b') .and. ga_duplicate(a, c, 'c')
  if (.not. ok) call ga_error('create', 1)
  do j = me + 1, n, nproc                      ! A(i,j) = i, by columns in turn
    do i = 1, n
      column(i) = i
    end do
    call ga_put(a, 1, n, j, j, column, n)
  end do
  call ga_distribution(b, me, lo(1), hi(1), lo(2), hi(2))
  if (lo(1) > 0) then                          ! B(i,j) = 2 if i = j, by index
    call ga_access(b, lo(1), hi(1), lo(2), hi(2), index, ld)
    do j = lo(2), hi(2)
      do i = lo(1), hi(1)
        dbl_mb(index + (i - lo(1)) + (j - lo(2)) * ld) = merge(2d0, 0d0, i == j)
      end do
    end do
    call ga_release_update(b, lo(1), hi(1), lo(2), hi(2))
  end if
  call ga_zero(c)
  call ga_sync()
  call ga_dgemm('n', 'n', n, n, n, 1d0, a, b, 0d0, c)
  column = 1
  call ga_acc(c, 1, n, 7, 7, column, n, 0.5d0)
  call ga_sync()
  do j = me + 1, n, nproc
    call ga_get(c, 1, n, j, j, column, n)
    do i = 1, n
      want = 2 * i + merge(0.5d0 * nproc, 0d0, j == 7)
      if (column(i) /= want) wrong(1) = wrong(1) + 1
    end do
  end do
  call ga_igop(1, wrong, 1, '+')
  if (me == 0 .and. wrong(1) == 0) print '(a,i0,a)', 'ga: passed on ', nproc, ' processes'
  ok = ga_destroy(a) .and. ga_destroy(b) .and. ga_destroy(c)
  call ga_terminate()
  call mpi_finalize(ierr)
  if (wrong(1) /= 0) stop 1
end program
