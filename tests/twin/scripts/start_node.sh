# start_node.sh ID NODE: start a node in name spaces of its own and wire it to the bridges.
# Runs inside the fence; the current directory is the node's own folder.
set -eu
id=$1 node=$2
rm -f wired
mkfifo wired
# A session of its own: no terminal and no Ctrl-C of whoever starts it reaches it.
setsid unshare --pid --fork --kill-child --mount --uts --net --ipc \
    sh node_init.sh "$id" "$node" </dev/null >console.log 2>&1 &
pid=$!
# Opening the pipe ends when the node has opened its end, so its name spaces exist by then.
exec 3>wired
sed "s/@PID@/$pid/" links.batch | ip -batch -
echo wired >&3
