# node_init.sh ID NODE: build the node's file system and move into it.
# The current directory is the node's own folder: root (a file: the lower directories), binds, boot.sh, addresses.
set -eu
id=$1 node=$2
read -r _ <wired

mount --make-rprivate /
mkdir -p top
mount -t tmpfs -o mode=755 tmpfs top
mkdir top/upper top/work top/root
mount -t overlay -o "lowerdir=$(cat root),upperdir=top/upper,workdir=top/work" overlay top/root
root=$PWD/top/root

mount -t proc proc "$root/proc"
# A sysfs of its own shows this node's interfaces only; slurmd looks for the machine's cgroups in it.
mount -t sysfs sysfs "$root/sys"
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/tmp"

# Devices of its own, because an ordinary user needs /dev/fuse, which is root's alone on most machines.
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
while read -r name major minor; do
    mkdir -p "$root/dev/${name%/*}"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done <<DEVICES
./null 1 3
./zero 1 5
./full 1 7
./random 1 8
./urandom 1 9
./tty 5 0
./fuse 10 229
DEVICES
# Devices without a driver, so that Slurm has eight GPUs to hand out.
for gpu in 0 1 2 3 4 5 6 7; do
    mkdir -p "$root/dev/dri"
    mknod -m 666 "$root/dev/dri/renderD$((128 + gpu))" c 1 3
done
mkdir -p "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"

while read -r mode source target; do
    if [ -d "$source" ]; then mkdir -p "$root$target"; else mkdir -p "$root${target%/*}"; : >>"$root$target"; fi
    mount --rbind "$source" "$root$target"
    [ "$mode" = rw ] || mount -o remount,bind,ro "$root$target"
done <binds

hostname "$node"
ip -batch addresses
cp -r etc/. "$root/etc/"
cp boot.sh "$root/run/boot.sh"
cd "$root"
mkdir -p mnt/before
# Under chroot, Apptainer finds no parent mount point.
pivot_root . mnt/before
exec chroot . /bin/sh /run/boot.sh "$id" "$node" </dev/null >/var/log/console.log 2>&1
