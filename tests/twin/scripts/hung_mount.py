"""hung_mount.py PLACE: mount a file system that never answers, as one whose server is gone, until this is killed."""

import ctypes
import os
import signal
import sys

fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
library = ctypes.CDLL(None, use_errno=True)
if library.mount(b"hung", os.fsencode(sys.argv[1]), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), sys.argv[1])
print("hung", flush=True)
# Who asks gets no answer; closing the device, which the end of this process does, lets all of them fail.
signal.pause()
