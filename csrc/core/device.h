/* Backends by name, devices, and what users may do on them. */
#ifndef TRI_CORE_DEVICE_H
#define TRI_CORE_DEVICE_H

#include "csrc/backend.h"

struct trib_device {
    const struct tri_backend *backend;
    int32_t ordinal;
    struct trib_device *next; /* in the list of all requested devices */
};

/* TRIB_ERR_UNKNOWN_NAME names the backends of this build. `name` is not NULL. */
trib_status tri_backend_get(const struct tri_backend **out, const char *name);
/* The first backend that has device `ordinal`. */
trib_status tri_backend_with(const struct tri_backend **out, int32_t ordinal);
/* TRIB_ERR_NO_DEVICE unless `backend` has device `ordinal`. */
trib_status tri_backend_has(const struct tri_backend *backend, int32_t ordinal);

/* The public functions of these names; pointers that must not be NULL are not NULL. */
trib_status tri_device_get(trib_device **out, const char *backend, int32_t ordinal);
trib_status tri_device_copy(trib_device *device, void *dst, const void *src, size_t bytes,
                            trib_stream stream);
/* TRIB_ERR_INVALID_STREAM unless `stream` is one of the device's. */
trib_status tri_device_check_stream(const trib_device *device, const char *function,
                                    trib_stream stream);

/* Make `device` this thread's current one, as the kernel table needs before it queues anything; pop
 * restores the one before. Both do nothing on a backend without current devices. */
trib_status tri_device_push(const struct tri_backend *backend, int32_t device, uintptr_t *previous);
void tri_device_pop(const struct tri_backend *backend, uintptr_t previous);

/* Is this cudaStreamPerThread? It is another stream on every thread, so the library can promise no
 * order on it. Host streams are never at this address. */
static inline bool tri_stream_is_per_thread(trib_stream stream)
{
    return (uintptr_t)stream == 2;
}

#endif
