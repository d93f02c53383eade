#!/bin/sh
# First process of the virtual LUMI-G node: start Slurm, run every /commands/N as the user, send /result, end.
# Commands may leave files in /tmp/out; they come along. ttyS0 is for the kernel, ttyS1 for the result.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do echo 1 >"$cpu"; done
taskset --pid --cpu-list "$(cat /sys/devices/system/cpu/online)" $$
echo "all CPUs run" >/dev/console
mkdir -p /dev/pts /dev/shm /dev/dri
mount -t devpts devpts /dev/pts
for place in /dev/shm /run /tmp; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
chmod 755 /run
ln -sf /proc/self/fd /dev/fd
for gpu in 0 1 2 3 4 5 6 7; do mknod -m 666 "/dev/dri/renderD$((128 + gpu))" c 1 3; done
hostname "$(cat /etc/hostname)"
ip link set lo up
# With 127.x alone, the look-up of the node's own name fails.
ip address add "$(cat /etc/own-address)/32" dev lo

chown munge:munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
install -d -o munge -g munge -m 755 /run/munge
install -d -o munge -g munge -m 700 /var/lib/munge /var/log/munge
install -d -o slurm -g slurm -m 755 /var/spool/slurmctld /var/log/slurm
install -d -m 755 /var/spool/slurmd
setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged
slurmctld
slurmd
mkdir -p /result /tmp/out
chmod 1777 /tmp/out
tries=0
until sinfo --noheader --format=%T 2>/dev/null | grep -q idle; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ]; then
        tail -n 30 /var/log/slurm/* >/result/failure
        break
    fi
    sleep 0.2
done

cat >/run/one.sh <<'ONE'
cd "$HOME"
exec sh "$1" # no login shell: in emulation its profile takes five seconds
ONE
user=$(cat /etc/guest-user)
install -d -o "$user" -g "$user" "/users/$user"
for command in /commands/*; do
    [ -e /result/failure ] && break
    number=${command##*/}
    setpriv --reuid "$user" --regid "$user" --init-groups env -i HOME="/users/$user" USER="$user" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh /run/one.sh "$command" >"/result/$number.out" 2>"/result/$number.err" </dev/null
    echo $? >"/result/$number.code"
done
mkdir /result/out
cp -r /tmp/out/. /result/out/
stty -F /dev/ttyS1 raw -echo
tar -C /result -cz . | cat >/dev/ttyS1 # tar itself refuses to write to a terminal
stty -F /dev/ttyS1 -raw # waits until all has been sent
echo o >/proc/sysrq-trigger
sleep 60
