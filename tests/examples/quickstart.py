"""Two ranks of this process sum their arrays; no package is needed.

TRIBUTARY_LIBRARY is the path of libtributary.so; without it the system is asked."""
import ctypes
import ctypes.util
import os


class Options(ctypes.Structure):  # trib_options
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("backend", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint32), ("close_timeout_ms", ctypes.c_uint32),
                ("call_timeout_ms", ctypes.c_uint32),
                ("min_ctas", ctypes.c_uint32), ("max_ctas", ctypes.c_uint32),
                ("cta_policy", ctypes.c_int32),
                ("network", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("peer_bytes", ctypes.c_uint64)]


TRIB_F32, TRIB_SUM = 3, 1
path = os.environ.get("TRIBUTARY_LIBRARY") or ctypes.util.find_library("tributary")
if path is None:
    raise SystemExit("there is no libtributary.so on this system: set TRIBUTARY_LIBRARY to its path")
trib = ctypes.CDLL(path)
trib.trib_last_detail.restype = ctypes.c_char_p


def check(status):
    if status != 0:
        raise RuntimeError(trib.trib_last_detail().decode())


Vector = ctypes.c_float * 4
data = [Vector(1, 2, 3, 4), Vector(10, 20, 30, 40)]
pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(vector) for vector in data))
options = Options(size=ctypes.sizeof(Options), backend=b"host")
group, device = ctypes.c_void_p(), ctypes.c_void_p()

check(trib.trib_group_create(ctypes.byref(group), None, 2, ctypes.byref(options)))
check(trib.trib_group_allreduce(group, pointers, pointers, ctypes.c_size_t(4), TRIB_F32, TRIB_SUM,
                                None))
for rank in range(2):  # it is queued: wait for each rank's default stream
    check(trib.trib_device_get(ctypes.byref(device), b"host", rank))
    check(trib.trib_stream_wait(device, None))
    print(f"rank {rank}:", *(f"{value:g}" for value in data[rank]))
check(trib.trib_group_destroy(group))
