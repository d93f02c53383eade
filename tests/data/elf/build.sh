#!/bin/sh
# Build the libraries of this folder: stand-ins with real SONAMEs, NEEDED entries and symbol versions, and nothing else
# in them. Run with gcc and GNU ld (12.2.0 and 2.40 of Debian 12, x86-64, made what is committed):
#     sh tests/data/elf/build.sh
# before/, after/: the host before and after January 2026; debian11/, suse155/, ubuntu24/: images.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# library FILE SONAME VERSIONS NEEDED...: VERSIONS is a list such as A_1,A_2, or - for none; each NEEDED is FILE:VERSION, or
# FILE:- for a library without versions. A version V of a library has one function, SONAME and V with _ for odd signs.
library() {
    file=$1 soname=$2 versions=$3
    shift 3
    : >"$work/map"
    : >"$work/code.c"
    calls= previous= objects=
    for need; do
        needed=${need%:*} version=${need##*:}
        symbol=$(symbol_of "$(soname_of "$needed")" "$version")
        echo "void $symbol(void);" >>"$work/code.c"
        calls="$calls $symbol();"
        case " $objects " in *" $needed "*) ;; *) objects="$objects $needed" ;; esac
    done
    for version in $(echo "$versions" | tr , ' '); do
        symbol=$(symbol_of "$soname" "$version")
        echo "void $symbol(void) {$calls }" >>"$work/code.c"
        [ "$version" = - ] || echo "$version { global: $symbol; } $previous;" >>"$work/map"
        previous=$version calls=
    done
    mkdir -p "$(dirname "$file")"
    script=
    [ "$versions" = - ] || script="-Wl,--version-script=$work/map"
    # shellcheck disable=SC2086  # lists of words on purpose
    gcc ${BITS:--m64} -shared -nostdlib -fPIC -O1 -fno-asynchronous-unwind-tables -s \
        -Wl,--build-id=none -Wl,--hash-style=gnu -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,--no-as-needed \
        -Wl,--allow-shlib-undefined $script ${EXTRA:-} -Wl,-soname,"$soname" -o "$file" "$work/code.c" $objects
}
symbol_of() { echo "$1_$2" | tr -c 'A-Za-z0-9\n' _; }
soname_of() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }

glibc() { # glibc FOLDER VERSIONS: GLIBC_2.2.5 to the last one given
    library "$1/libc.so.6" libc.so.6 "$2"
}
glibc before GLIBC_2.2.5,GLIBC_2.14,GLIBC_2.28,GLIBC_2.30
glibc after GLIBC_2.2.5,GLIBC_2.14,GLIBC_2.28,GLIBC_2.30,GLIBC_2.34,GLIBC_2.38
glibc debian11 GLIBC_2.2.5,GLIBC_2.14,GLIBC_2.28,GLIBC_2.30
glibc suse155 GLIBC_2.2.5,GLIBC_2.14,GLIBC_2.28,GLIBC_2.30,GLIBC_2.34
glibc ubuntu24 GLIBC_2.2.5,GLIBC_2.14,GLIBC_2.28,GLIBC_2.30,GLIBC_2.34,GLIBC_2.38,GLIBC_2.39
library suse155/libstdc++.so.6 libstdc++.so.6 GLIBCXX_3.4,GLIBCXX_3.4.30 suse155/libc.so.6:GLIBC_2.14
library after/libstdc++.so.6 libstdc++.so.6 GLIBCXX_3.4,GLIBCXX_3.4.30,GLIBCXX_3.4.32 after/libc.so.6:GLIBC_2.34

# json-c has symbol versions from 0.14 (SONAME libjson-c.so.5) on
library before/libjson-c.so.3 libjson-c.so.3 - before/libc.so.6:GLIBC_2.14
library after/libjson-c.so.5 libjson-c.so.5 JSONC_0.14,JSONC_0.15,JSONC_0.16 after/libc.so.6:GLIBC_2.14
library suse155/libjson-c.so.3 libjson-c.so.3 - suse155/libc.so.6:GLIBC_2.14
library ubuntu24/libjson-c.so.5 libjson-c.so.5 JSONC_0.14,JSONC_0.15,JSONC_0.16,JSONC_0.17 ubuntu24/libc.so.6:GLIBC_2.38

library before/libcxi.so.1 libcxi.so.1 LIBCXI_1.0 before/libc.so.6:GLIBC_2.14 before/libjson-c.so.3:-
library after/libcxi.so.1 libcxi.so.1 LIBCXI_1.0,LIBCXI_1.5 after/libc.so.6:GLIBC_2.34
library ubuntu24/libcxi.so.1 libcxi.so.1 LIBCXI_1.0,LIBCXI_1.5 ubuntu24/libc.so.6:GLIBC_2.38

library before/libfabric.so.1 libfabric.so.1 FABRIC_1.0,FABRIC_1.4,FABRIC_1.5 \
    before/libcxi.so.1:LIBCXI_1.0 before/libjson-c.so.3:- before/libc.so.6:GLIBC_2.28
library after/libfabric.so.1 libfabric.so.1 FABRIC_1.0,FABRIC_1.4,FABRIC_1.5,FABRIC_1.7 \
    after/libcxi.so.1:LIBCXI_1.5 after/libjson-c.so.5:JSONC_0.14 after/libc.so.6:GLIBC_2.34
library debian11/libfabric.so.1 libfabric.so.1 FABRIC_1.0,FABRIC_1.4 debian11/libc.so.6:GLIBC_2.14
library ubuntu24/libfabric.so.1 libfabric.so.1 FABRIC_1.0,FABRIC_1.4,FABRIC_1.5,FABRIC_1.7,FABRIC_1.8 \
    ubuntu24/libcxi.so.1:LIBCXI_1.5 ubuntu24/libc.so.6:GLIBC_2.38

# Cray MPICH has no symbol versions; its GPU transport layer is C++
library after/libmpi_gnu_123.so.12 libmpi_gnu_123.so.12 - after/libfabric.so.1:FABRIC_1.5 after/libc.so.6:GLIBC_2.14
library after/libmpi_gtl_hsa.so.0 libmpi_gtl_hsa.so.0 - after/libstdc++.so.6:GLIBCXX_3.4.32 after/libc.so.6:GLIBC_2.14

EXTRA='-Wl,-rpath,$ORIGIN/../private:/opt/$LIB/${PLATFORM} -Wl,--enable-new-dtags' \
    library odd/librunpath.so.1 librunpath.so.1 - before/libjson-c.so.3:-
EXTRA='-Wl,-rpath,/opt/old -Wl,--disable-new-dtags -Wl,-z,nodefaultlib' \
    library odd/librpath.so.1 librpath.so.1 - before/libjson-c.so.3:-
BITS=-m32 library odd/lib32.so.1 lib32.so.1 A_1,A_2
printf 'int main(void) { return 0; }' >"$work/main.c"
gcc -nostdlib -O1 -s -fno-asynchronous-unwind-tables -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-e,main \
    -Wl,--no-as-needed -Wl,-z,norelro -o odd/program "$work/main.c" before/libc.so.6 -Wl,--allow-shlib-undefined
