/* A library to preload: each call of Tributary that may wait for a lock, a device or a rank ends the
 * process if its thread holds Python's GIL. Other ranks of the process may need it.
 * gpu_fake.sh runs tests with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*check)(void);
/* As many words as any of the functions below has; those it lacks are not looked at. */
typedef int32_t (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *);

static function real(const char *name)
{
    check holds_gil = (check)dlsym(RTLD_DEFAULT, "PyGILState_Check");
    if (holds_gil && holds_gil()) {
        fprintf(stderr, "%s was called with the GIL\n", name);
        abort();
    }
    /* Python loads the library for its module alone, where RTLD_NEXT does not look. */
    void *library = dlopen("libtributary.so", RTLD_LAZY | RTLD_NOLOAD);
    function found = library ? (function)dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "gil.c: %s is not there\n", name);
        abort();
    }
    return found;
}

#define WATCH(name)                                                                                \
    int32_t name(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i)  \
    {                                                                                              \
        return real(#name)(a, b, c, d, e, f, g, h, i);                                             \
    }

WATCH(trib_backend_devices)
WATCH(trib_backend_capabilities)
WATCH(trib_device_get)
WATCH(trib_stream_create)
WATCH(trib_stream_query)
WATCH(trib_stream_wait_event)
WATCH(trib_stream_destroy)
WATCH(trib_event_create)
WATCH(trib_event_record)
WATCH(trib_event_query)
WATCH(trib_event_elapsed)
WATCH(trib_event_destroy)
WATCH(trib_abort_raise)
WATCH(trib_abort_raised)
WATCH(trib_abort_status)
WATCH(trib_abort_defer)
WATCH(trib_abort_state)
WATCH(trib_group_create)
WATCH(trib_group_allreduce)
WATCH(trib_group_wait)
WATCH(trib_group_status)
WATCH(trib_group_split)
WATCH(trib_group_destroy)
WATCH(trib_id_create)
WATCH(trib_comm_create)
WATCH(trib_comm_split)
WATCH(trib_comm_shrink)
WATCH(trib_comm_close)
WATCH(trib_comm_wait)
WATCH(trib_comm_status)
WATCH(trib_comm_counters)
WATCH(trib_comm_destroy)
WATCH(trib_allreduce_with)
WATCH(trib_broadcast)
WATCH(trib_send)
WATCH(trib_recv)
WATCH(trib_barrier)
WATCH(trib_symmetric_alloc)
WATCH(trib_symmetric_import)
WATCH(trib_symmetric_query)
WATCH(trib_symmetric_free)
WATCH(trib_allreduce_list_with)
WATCH(trib_sparse_create)
WATCH(trib_sparse_allreduce)
WATCH(trib_sparse_statistics_get)
WATCH(trib_sparse_export)
WATCH(trib_sparse_destroy)
WATCH(trib_reducer_create)
WATCH(trib_reducer_ready)
WATCH(trib_reducer_finish)
WATCH(trib_reducer_status)
WATCH(trib_reducer_statistics)
WATCH(trib_reducer_destroy)
WATCH(trib_batch_begin)
WATCH(trib_batch_end)
WATCH(trib_quiesce)
WATCH(trib_dump)
