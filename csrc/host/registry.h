/* A registry of address ranges: memory, streams or events that this backend has created. It
 * recognises a foreign pointer without reading from it. */
#ifndef TRI_HOST_REGISTRY_H
#define TRI_HOST_REGISTRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_extent {
    uintptr_t start;
    size_t bytes;
    int32_t device;
};

struct tri_registry {
    /* Guards the fields below. A writer holds it for the length of a memmove and waits for nothing
     * meanwhile, so a reader never waits longer. */
    pthread_rwlock_t lock;
    struct tri_extent *ranges; /* ascending, without overlap */
    size_t count;
    size_t capacity;
};

#define TRI_REGISTRY_INIT {PTHREAD_RWLOCK_INITIALIZER, NULL, 0, 0}

/* False when memory is short. */
bool tri_registry_add(struct tri_registry *registry, const void *start, size_t bytes,
                      int32_t device);

/* Remove the range that starts at `start` on `device`. False if there is none. */
bool tri_registry_remove(struct tri_registry *registry, const void *start, int32_t device);

/* The device of the object that starts at `start`; -1 if there is none. */
int32_t tri_registry_device(struct tri_registry *registry, const void *start);

/* The first range that overlaps [data, data + bytes); false if there is none. An empty range counts
 * as one byte. */
bool tri_registry_find(struct tri_registry *registry, const void *data, size_t bytes,
                       struct tri_extent *out);

/* Call `visit` with the object that starts at `start`, if there is one. Returns its device, or -1.
 * No thread can remove the object meanwhile, so `visit` can acquire an object that another thread
 * is about to remove and free. `visit` must not wait. */
int32_t tri_registry_visit(struct tri_registry *registry, const void *start,
                           void (*visit)(void *object, void *context), void *context);

/* The same for all objects. */
void tri_registry_visit_all(struct tri_registry *registry, void (*visit)(void *object));

#endif
