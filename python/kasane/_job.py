# SPDX-License-Identifier: Apache-2.0
"""Joining the ranks of a job, and leaving it."""
import atexit
import ctypes
import difflib
import gc
import os
import sys

from . import _core
from ._errors import Error

# Variables by which a launcher tells a process that it has started ranks, and whose launcher it is.
LAUNCHERS = {"OMPI_COMM_WORLD_SIZE": "openmpi", "PMI_SIZE": "mpich"}
# What attach() takes beside comm: docs/guide/options.md, without KASANE_.
_OPTIONS = (
    "bind", "check", "code_of", "debug", "dram", "faults", "globals", "globals_of", "issue", "job_key",
    "log", "main", "main_stack", "malloc", "map", "mpi", "new", "progress", "ranks", "show_binding",
    "slots", "space", "spill", "stack", "stats", "tag_output", "threads", "trace", "transport", "workers",
)
# By which a process knows that one that has joined a job has started it: the launcher's variables are not its
# own, and it is a job by itself.
_RANK = "_KASANE_PYTHON_RANK"
_OF_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMI_FD",
                 "PMIX_RANK", "KASANE_MPI")
# By which kasane run says so to ranks that it starts without an MPI.
BY_AGENT = ("KASANE_AGENT_RANK", "KASANE_AGENT_RANKS", "KASANE_AGENT_HERE", "KASANE_AGENT_SOCKET")
_started = None  # the MPI's library, if this package has initialised it


def attach(comm=None, **options):
    """Join the ranks of ``comm``, an mpi4py communicator; without: all ranks that mpirun started.

    Collective. The first use of the package does it where the program does not. Without mpirun the
    process is alone, one rank. Where mpi4py.MPI is not imported, the package initialises the
    launcher's MPI, and finalises it at exit.

    options: those of Kasane by name, ``dram="512M"`` for KASANE_DRAM (rank 0's count).

    Raises TypeError: an option that is none; Error: attached already; ArgumentError: an option's value or an
    MPI that does not fit.
    """
    check_options("attach", options)
    if _core.attached():
        raise Error(1, "kasane.attach: the process has joined a job already, as the first use of the package "
                       "does; call attach before, or detach()")
    given = {"KASANE_" + name.upper(): str(value) for name, value in options.items()}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        _attach(comm)
    except BaseException:  # a later call is without them
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        raise
    if _core.ranks() > 1:
        os.environ[_RANK] = str(os.getpid())
        _end_job_at_exceptions()


def check_options(call, options):
    """Raises TypeError: a name that is no option."""
    for name in options:
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            raise TypeError(
                f"kasane.{call}: {name} is no option" + (f"; did you mean {near[0]}?" if near else "")
            )


def _attach(comm):
    mpi4py = sys.modules.get("mpi4py.MPI")
    if comm is None and os.environ.get(_RANK, str(os.getpid())) != str(os.getpid()):
        for variable in _OF_LAUNCHERS:
            os.environ.pop(variable, None)
    if comm is not None:
        if mpi4py is None:
            raise TypeError("kasane.attach: comm is a communicator of mpi4py; import mpi4py.MPI")
        _core.attach(_name_of(mpi4py.Get_library_version()), mpi4py._addressof(comm))
    else:
        if mpi4py is None:
            _start_mpi()
        by_agent = BY_AGENT[0] in os.environ
        _core.attach(None, 0)
        if by_agent:  # kasane run without an MPI, whose end would leave the job
            for variable in BY_AGENT:
                os.environ.pop(variable, None)
            atexit.register(_leave)


def detach():
    """Leave the job: the contents of all arrays are gone. Collective; attach() joins again.

    The end of the program does it, too. Raises Error at all ranks if NumPy views of parts (``local``,
    ``parts``) are alive at one, since their memory would be gone.
    """
    if not _core.attached():
        raise Error(1, "kasane.detach: the process is not attached")
    gc.collect()  # tracebacks in cycles hold views
    views = [int.from_bytes(n, "little") for n in _core.allgather(_core.views().to_bytes(8, "little"))]
    for rank, alive in enumerate(views):
        if alive:
            raise Error(16, f"kasane.detach: {alive} views of parts are alive at rank {rank}; "
                            "delete what local and parts() gave")
    _core.detach()


def attached():
    """Whether the process has joined a job."""
    return _core.attached() != 0


def rank():
    """This process's number, from 0. Joins the job."""
    _need()
    return _core.rank()


def ranks():
    """How many processes the job has. Joins the job."""
    _need()
    return _core.ranks()


def barrier():
    """Wait until all ranks have called it: what they did before is seen by all afterwards. Joins the job."""
    _need()
    _core.barrier()


def _need():
    if not _core.attached():
        attach()


def _name_of(version):
    return "openmpi" if "Open MPI" in version else "mpich"


def _start_mpi():
    """MPI_Init of the launcher's MPI, through the library's module for it, which is linked to that MPI."""
    global _started
    name = next((mpi for variable, mpi in LAUNCHERS.items() if variable in os.environ), None)
    if name is None or _started is not None:
        return
    module = os.path.join(os.path.dirname(_core.library_file()), "kasane", f"kasane-mpi-{name}.so")
    try:
        mpi = ctypes.CDLL(module, mode=ctypes.RTLD_GLOBAL)
    except OSError as failure:
        raise Error(1, f"kasane: started by mpirun of {name}, but {failure}; install kasane-{name}") from None
    runs = ctypes.c_int()
    mpi.MPI_Initialized(ctypes.byref(runs))
    if not runs.value:
        mpi.MPI_Init(None, None)
        atexit.register(_finalize, mpi)
    _started = mpi


def _leave():
    if _core.attached() and not _core.forked():
        _core.detach()


def _finalize(mpi):
    if _core.forked():
        return  # the MPI is the parent's
    over = ctypes.c_int()
    mpi.MPI_Finalized(ctypes.byref(over))
    if not over.value:
        mpi.MPI_Finalize()  # detaches first


def _end_job_at_exceptions():
    """An exception that ends one rank ends the job: the others would wait for it."""
    before = sys.excepthook
    if getattr(before, "of_kasane", False):
        return

    def hook(kind, value, trace):
        before(kind, value, trace)
        if _core.attached() and _core.ranks() > 1:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)  # without MPI_Finalize, which tells the launcher

    hook.of_kasane = True
    sys.excepthook = hook
