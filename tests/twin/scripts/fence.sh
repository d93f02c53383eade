# First process of a cluster's outermost process name space: everything of the cluster lives below it.
# It starts when it is told to on stdin, so that nothing runs whose process id has not been written down.
read -r go && [ "$go" = go ] || exit 0
exec </dev/null >/dev/null 2>&1
# A shell that waits also buries the orphans that are handed to it.
while :; do sleep 86400; done
