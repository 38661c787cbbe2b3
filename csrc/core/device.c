/* Backends by name, devices, and what users may do on them. */
#include "csrc/core/device.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/process.h"
#include "csrc/base/status.h"
#include "csrc/base/text.h"

/* Every device requested so far. Threads add entries at the head and never remove them, so a reader
 * needs no lock. If two threads add the same device, the compare-and-exchange below keeps one. */
static _Atomic(struct trib_device *) devices;

struct backend_list {
    char text[128];
};

/* The backends of this build, for a detail: "nccl", "host"; with `counts`, "nccl" has 0, "host"
 * has 64. */
static struct backend_list list_backends(bool counts)
{
    struct backend_list list = {""};
    struct tri_text text = {.data = list.text, .room = sizeof list.text};
    for (size_t i = 0; tri_backends[i] != NULL; i++) {
        tri_text_add(&text, "%s\"%s\"", i == 0 ? "" : ", ", tri_backends[i]->name);
        if (counts)
            tri_text_add(&text, " has %d", tri_backends[i]->device->count());
    }
    return list;
}

trib_status tri_backend_get(const struct tri_backend **out, const char *name)
{
    *out = tri_backend_find(name);
    if (*out != NULL)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNKNOWN_NAME, "no backend is called \"%s\"; this build has %s%s", name,
                    list_backends(false).text, TRI_NOT_BUILT);
}

trib_status tri_backend_has(const struct tri_backend *backend, int32_t ordinal)
{
    const int32_t count = backend->device->count();
    if (ordinal >= 0 && ordinal < count)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_NO_DEVICE,
                    "backend \"%s\" has no device %d: it can use %d now, numbered from 0",
                    backend->name, ordinal, count);
}

trib_status tri_backend_with(const struct tri_backend **out, int32_t ordinal)
{
    for (size_t i = 0; tri_backends[i] != NULL; i++) {
        *out = tri_backends[i];
        if (ordinal >= 0 && ordinal < (*out)->device->count())
            return TRIB_OK;
    }
    *out = NULL;
    return tri_fail(TRIB_ERR_NO_DEVICE, "no backend of this build has a device %d: %s%s", ordinal,
                    list_backends(true).text, TRI_NOT_BUILT);
}

static struct trib_device *find(struct trib_device *from, const struct tri_backend *backend,
                                int32_t ordinal)
{
    while (from != NULL && (from->backend != backend || from->ordinal != ordinal))
        from = from->next;
    return from;
}

trib_status tri_device_get(trib_device **out, const char *name, int32_t ordinal)
{
    const struct tri_backend *backend = NULL;
    TRI_TRY(name == NULL ? tri_backend_with(&backend, ordinal) : tri_backend_get(&backend, name));
    TRI_TRY(tri_backend_has(backend, ordinal));
    tri_process_use();
    struct trib_device *head = atomic_load_explicit(&devices, memory_order_acquire);
    if ((*out = find(head, backend, ordinal)) != NULL)
        return TRIB_OK;
    struct trib_device *device = malloc(sizeof *device);
    if (device == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_device_get: no memory for a device");
    *device = (struct trib_device){.backend = backend, .ordinal = ordinal, .next = head};
    while (!atomic_compare_exchange_strong_explicit(&devices, &device->next, device,
                                                    memory_order_acq_rel, memory_order_acquire)) {
        *out = find(device->next, backend, ordinal);
        if (*out != NULL) {
            free(device);
            return TRIB_OK;
        }
    }
    *out = device;
    return TRIB_OK;
}

trib_status tri_device_check_stream(const trib_device *device, const char *function,
                                    trib_stream stream)
{
    if (tri_stream_is_per_thread(stream))
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: `stream` is the per-thread default stream, which is another stream on "
                        "every thread: create one, or pass NULL",
                        function);
    size_t found = 0;
    switch (device->backend->device->check_stream(device->ordinal, stream, &found)) {
    case TRI_FAULT_NONE:
        return TRIB_OK;
    case TRI_FAULT_OTHER_DEVICE:
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: `stream` belongs to device %zu of backend \"%s\", not to device %d: "
                        "pass a stream of that device",
                        function, found, device->backend->name, device->ordinal);
    default:
        return tri_fail(TRIB_ERR_INVALID_STREAM,
                        "%s: `stream` (%p) is no stream of backend \"%s\": create it with "
                        "trib_stream_create",
                        function, stream, device->backend->name);
    }
}

trib_status tri_device_push(const struct tri_backend *backend, int32_t device, uintptr_t *previous)
{
    const struct tri_device_ops *ops = backend->device;
    return ops->push_device == NULL ? TRIB_OK : ops->push_device(device, previous);
}

void tri_device_pop(const struct tri_backend *backend, uintptr_t previous)
{
    if (backend->device->pop_device != NULL)
        backend->device->pop_device(previous);
}

trib_status tri_device_copy(trib_device *device, void *dst, const void *src, size_t bytes,
                            trib_stream stream)
{
    TRI_TRY(tri_device_check_stream(device, "trib_device_copy", stream));
    if (bytes == 0)
        return TRIB_OK;
    if (dst == NULL || src == NULL)
        return tri_fail(TRIB_ERR_INVALID_BUFFER,
                        "trib_device_copy: `%s` is NULL; expected %zu bytes",
                        dst == NULL ? "dst" : "src", bytes);
    return device->backend->device->copy(device->ordinal, dst, src, bytes, stream);
}
