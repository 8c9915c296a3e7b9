# SPDX-License-Identifier: Apache-2.0
# A recipe for Spack, in a repository of its own (repo.yaml):
#   spack repo add packaging/spack
#   spack dev-build -d . kasane@0.2.0 +ucx +openmpi      # from this source tree
from spack.package import *


class Kasane(CMakePackage):
    """One address space over caches, NUMA nodes, the DRAM of many machines and SSD, and threads
    that move to where work is: a runtime for threaded C++ and C programs."""

    license("Apache-2.0")

    version("0.2.0")

    variant("ucx", default=True, description="Join ranks of several hosts by UCX")
    variant("openmpi", default=False, description="Ranks of Open MPI's mpirun, --transport mpi")
    variant("pmix", default=True, description="Ranks that srun --mpi=pmix or prterun starts")
    variant("apps", default=True, description="The applications of kasane run -- NAME")
    variant("bench", default=False, description="The suites of kasane bench")

    conflicts("platform=darwin", msg="Kasane runs on Linux")
    conflicts("platform=windows", msg="Kasane runs on Linux")
    requires("target=x86_64:", msg="Kasane runs on x86-64")
    requires("%gcc@12:", "%clang@19:", policy="one_of")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("tl-expected")
    depends_on("fmt@9:")
    depends_on("spdlog +fmt_external")
    depends_on("cli11@2:")
    depends_on("nlohmann-json@3.11:")
    depends_on("hwloc@2:")
    depends_on("liburing@2.3:")
    depends_on("xxhash")
    depends_on("elfutils")
    depends_on("capstone@4:")
    depends_on("zlib-api", when="+apps")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("openmpi@4.1:", when="+openmpi")
    depends_on("pmix@4:", when="+pmix")
    depends_on("intel-oneapi-tbb", when="+bench")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("KASANE_BUILD_TESTS", False),
            self.define("KASANE_BUILD_EXAMPLES", False),
            self.define_from_variant("KASANE_BUILD_APPS", "apps"),
            self.define_from_variant("KASANE_BUILD_BENCH", "bench"),
        ]
