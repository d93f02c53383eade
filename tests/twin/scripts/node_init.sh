# node_init.sh ID NODE: build the node's file system and move into it.
# The current directory is the node's own folder: root (a file: the lower directories), binds, dev, boot.sh, addresses.
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
# What tells a node's kind is as the twin's description has it, whatever this machine is.
mkdir -p kernel
echo 0-1 >kernel/present
echo 0 >kernel/has_cpu
mount --bind kernel/present "$root/sys/devices/system/cpu/present"
mount --bind kernel/has_cpu "$root/sys/devices/system/node/has_cpu"
if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$root/tmp"

mount -t tmpfs -o mode=755 tmpfs "$root/dev"
cp -a dev/. "$root/dev/"
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

# With setuid, the default of SingularityCE's build, the kernel mounts images, not a program for each container. Debian
# builds no starter-suid; its starter does the same. It is made here, where no user of this machine comes to it.
starter=$root/usr/lib/x86_64-linux-gnu/apptainer/bin/starter
install -m 4755 "$starter" "$starter-suid"
echo "allow setuid-mount squashfs = yes" >>"$root/etc/apptainer/apptainer.conf"
sed -i "s/^shared loop devices = no/shared loop devices = yes/" "$root/etc/apptainer/apptainer.conf"

hostname "$node"
ip -batch addresses
cp -r etc/. "$root/etc/"
cp boot.sh "$root/run/boot.sh"
cd "$root"
mkdir -p mnt/before
# Under chroot, Apptainer finds no parent mount point.
pivot_root . mnt/before
exec chroot . /bin/sh /run/boot.sh "$id" "$node" </dev/null >/var/log/console.log 2>&1
