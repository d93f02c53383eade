# boot.sh ID NODE: the node's own start, inside its root; stays as its first process.
set -u
node=$2
umount -l /mnt/before && rmdir /mnt/before
chown munge:munge /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
install -d -o munge -g munge -m 755 /run/munge
install -d -o munge -g munge -m 700 /var/lib/munge /var/log/munge
install -d -o slurm -g slurm -m 755 /var/spool/slurmctld /var/log/slurm
install -d -m 755 /var/spool/slurmd
# The host libraries, if this node has any, are in places that its Debian does not search.
if [ -e /etc/ld.so.conf.d/host.conf ]; then ldconfig; fi
setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged
if [ -e /etc/lumisite-twin-controller ]; then slurmctld; else slurmd; fi
# A shell that waits also buries the orphans that are handed to it.
while :; do sleep 86400; done
