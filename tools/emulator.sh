#!/bin/bash
# `dovetail check` on a processor that is not at hand: Linux in Bochs, which knows AVX-512 and AMX (qemu stops at AVX2). All in build-emulator/.
#   tools/emulator.sh [PROCESSOR [OPERATOR ...]]      sapphire_rapids, linear and fused_experts; also corei7_skylake_x, arrow_lake, ryzen, ...
# The first time it fetches Bochs 3.0 and a kernel from Debian 13, and compiles Bochs: 5 minutes. A check of one operator takes 2 to 5 more.
# tools/bochs.patch adds IA32_XFD, without which Linux gives no process AMX, and mends how Bochs saves tiles.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD here=$PWD/build-emulator processor=${1:-sapphire_rapids} build=${BUILD:-build}
shift || true
[ $# -gt 0 ] || set -- linear fused_experts
mkdir -p "$here/apt/partial"
cd "$here"

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
command -v xorriso >/dev/null || $sudo apt-get install -y -qq --no-install-recommends xorriso >/dev/null

if [ ! -x bochs-3.0/bochs ]; then
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    printf '%s [signed-by='$key'] http://deb.debian.org/debian trixie main\n' deb deb-src >sources.list
    options="-oDir::Etc::sourcelist=$here/sources.list -oDir::Etc::sourceparts=- -oDir::State::Lists=$here/apt -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User="
    apt-get $options update -qq
    apt-get $options source -qq --download-only bochs 2>/dev/null || [ -f bochs_3.0+dfsg.orig.tar.xz ]
    kernel=$(apt-cache $options depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)
    apt-get $options download -qq bochsbios vgabios isolinux syslinux-common busybox-static "$kernel"
    for package in *.deb; do dpkg -x "$package" files; done
    tar xf bochs_3.0+dfsg.orig.tar.xz
    cd bochs-3.0
    patch -p1 -s <"$root/tools/bochs.patch"
    CXXFLAGS=-O2 ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-amx --enable-repeat-speedups \
        --enable-fast-function-calls --enable-handlers-chaining --disable-docbook --with-nogui >configure.log 2>&1
    make -j"$(nproc)" >make.log 2>&1 || [ -x bochs ] || { tail -5 make.log; exit 1; }
    cd ..
fi

# An initial file system: busybox, the command, its library, the shipped operators, and the libraries of libc.
rm -rf root disk
mkdir -p root/{bin,proc,dev,tmp,home/bin,home/lib,home/include} disk
cp files/usr/bin/busybox root/bin/
cp "$root/$build/bin/dovetail" root/home/bin/
cp -L "$root/$build"/lib/libdovetail.so* root/home/lib/
cp -r "$root/$build/ops" root/home/ops
cp -L "$root/include/dovetail_op.h" root/home/include/
for library in $(ldd root/home/bin/dovetail | grep -o '/[^ )]*') $(ldd root/home/ops/base.so | grep -o '/[^ )]*'); do
    case $library in "$root"/*) ;; *) mkdir -p "root$(dirname "$library")" && cp -L "$library" "root$library" ;; esac
done
cat >root/init <<END
#!/bin/busybox sh
export PATH=/bin NO_COLOR=1
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/shm
busybox mount -t tmpfs shm /dev/shm
busybox mount -t tmpfs tmp /tmp
cd /home
failed=0
for name in $*; do
    bin/dovetail check ops/\$name.so --only runs,values,memory,parallel 2>/tmp/said || { failed=1; busybox tail -5 /tmp/said; }
done
echo "ended with \$failed"
busybox sleep 100000
END
chmod +x root/init
(cd root && find . | ../files/usr/bin/busybox cpio -o -H newc 2>/dev/null) | gzip -1 >disk/initrd.gz
cp files/boot/vmlinuz-* disk/vmlinuz
cp files/usr/lib/ISOLINUX/isolinux.bin files/usr/lib/syslinux/modules/bios/ldlinux.c32 disk/
cat >disk/isolinux.cfg <<'END'
DEFAULT linux
LABEL linux
KERNEL vmlinuz
APPEND initrd=initrd.gz console=ttyS0 acpi=off rdinit=/init nokaslr mitigations=off tsc=reliable no_timer_check lpj=1000000 random.trust_cpu=on quiet panic=1
END
xorriso -as mkisofs -quiet -o disk.iso -b isolinux.bin -c boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table disk
cat >bochsrc <<END
display_library: nogui
romimage: file=$here/files/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=$here/files/usr/share/vgabios/vgabios.bin
megs: 512
cpu: model=$processor, count=1, ips=50000000, reset_on_triple_fault=0
ata0-master: type=cdrom, path=$here/disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$here/serial
log: $here/bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
clock: sync=none
END
rm -f serial
bochs-3.0/bochs -q -f bochsrc -unlock </dev/null >bochs.out 2>&1 &
bochs=$!
trap 'kill $bochs 2>/dev/null || true' EXIT
until grep -q "^ended with\|not syncing" serial 2>/dev/null; do
    kill -0 $bochs 2>/dev/null || { tail -5 bochs.out; exit 1; }
    sleep 1
done
tr -d '\r' <serial | sed 1,2d
grep -q "^ended with 0" serial
