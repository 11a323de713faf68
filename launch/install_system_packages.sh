#!/bin/sh
# Installs the system packages that are missing, where that is possible without asking; see `usage`.
# Exit 0: all there. Exit 1: something is still missing, and the last line says what, and the command.
set -eu

usage="usage: install_system_packages.sh build|test
  build   what building Horovod needs: C++ compiler, make, Open MPI
  test    the same and what the tests start: MPICH, SLURM, munge; and Chromium, zsh and fish where they are packages"

has() { command -v "$1" >/dev/null 2>&1; }
has_daemon() (
    PATH=$PATH:/usr/sbin:/sbin
    has "$1"
)

# Programs are looked for, not packages: on a cluster they may come from a module or from /opt.
provides() {
    case $1 in
        g++) has c++ || has g++ ;;
        make) has make ;;
        openmpi-bin) has mpirun ;;
        libopenmpi-dev) has mpicxx && echo '#include <mpi.h>' | mpicxx -E -x c++ - >/dev/null 2>&1 ;;
        mpich) has mpirun.mpich || has mpiexec.hydra ;;
        slurm-wlm) has_daemon slurmctld && has_daemon slurmd && has srun ;;
        munge) has_daemon munged ;;
        chromium) has chromium || has chromium-browser || has google-chrome ;;
        zsh | fish) has "$1" ;;
    esac
}

list_missing() {
    missing=
    for package in $wanted; do
        provides "$package" || missing="$missing $package"
    done
    missing=${missing# }
}

say() { echo "install_system_packages: $*" >&2; }

# Each of `optional` is installed on its own: not every system has a package of that name, and one that is unknown
# would keep apt from installing the others.
optional=
case ${1:-} in
    build) wanted="g++ make openmpi-bin libopenmpi-dev" ;;
    test)
        wanted="g++ make openmpi-bin libopenmpi-dev mpich slurm-wlm munge"
        optional="chromium zsh fish"
        ;;
    *) echo "$usage" >&2; exit 2 ;;
esac

list_missing
lacking=
for package in $optional; do
    provides "$package" || lacking="$lacking $package"
done
optional=${lacking# }
[ -z "$missing$optional" ] && exit 0
if [ -z "$missing" ] && ! has apt-get; then exit 0; fi

if ! has apt-get; then
    say "missing, in Debian's names: $missing; install their like with the package manager of this system"
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif has sudo && sudo -n true 2>/dev/null; then
    as_root=sudo
else
    [ -z "$missing" ] && exit 0
    say "missing: $missing; install with: sudo apt-get install $missing"
    exit 1
fi

log=$(mktemp "${TMPDIR:-/tmp}/distxcept-packages.XXXXXX")
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get -qq update && apt-get -qq install --yes --no-install-recommends "$@"' sh "$@" >>"$log" 2>&1 </dev/null
}
for package in $optional; do
    say "installing $package (log: $log)"
    install "$package" || say "no package $package: the tests that need it will be skipped"
done
[ -z "$missing" ] && { rm -f "$log"; exit 0; }
say "installing $missing (log: $log)"
# shellcheck disable=SC2086  # the list is meant to be split
if install $missing; then
    list_missing
    [ -z "$missing" ] && { rm -f "$log"; exit 0; }
fi
say "could not install $missing: $(grep -m 1 '^E: ' "$log" || echo 'no reason given'); log: $log; by hand: apt-get install $missing"
exit 1
