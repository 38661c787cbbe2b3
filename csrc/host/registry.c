/* A registry of address ranges: a sorted array. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/registry.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first range that starts above `address`. Locked. */
static size_t upper_bound(const struct tri_registry *registry, uintptr_t address)
{
    size_t low = 0;
    size_t high = registry->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (registry->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The range that starts at `address`, or NULL. Locked. */
static struct tri_extent *find_start(const struct tri_registry *registry, uintptr_t address)
{
    const size_t i = upper_bound(registry, address);
    if (i == 0 || registry->ranges[i - 1].start != address)
        return NULL;
    return &registry->ranges[i - 1];
}

static bool reserve(struct tri_registry *registry)
{
    if (registry->count < registry->capacity)
        return true;
    const size_t capacity = registry->capacity == 0 ? 64 : 2 * registry->capacity;
    struct tri_extent *ranges = realloc(registry->ranges, capacity * sizeof *ranges);
    if (ranges == NULL)
        return false;
    registry->ranges = ranges;
    registry->capacity = capacity;
    return true;
}

bool tri_registry_add(struct tri_registry *registry, const void *start, size_t bytes,
                      int32_t device)
{
    pthread_rwlock_wrlock(&registry->lock);
    const bool room = reserve(registry);
    if (room) {
        const size_t i = upper_bound(registry, (uintptr_t)start);
        struct tri_extent *at = &registry->ranges[i];
        memmove(at + 1, at, (registry->count - i) * sizeof *at);
        *at = (struct tri_extent){.start = (uintptr_t)start, .bytes = bytes, .device = device};
        registry->count++;
    }
    pthread_rwlock_unlock(&registry->lock);
    return room;
}

bool tri_registry_remove(struct tri_registry *registry, const void *start, int32_t device)
{
    pthread_rwlock_wrlock(&registry->lock);
    struct tri_extent *at = find_start(registry, (uintptr_t)start);
    const bool found = at != NULL && at->device == device;
    if (found) {
        registry->count--;
        memmove(at, at + 1, (size_t)(registry->ranges + registry->count - at) * sizeof *at);
    }
    pthread_rwlock_unlock(&registry->lock);
    return found;
}

int32_t tri_registry_device(struct tri_registry *registry, const void *start)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct tri_extent *at = find_start(registry, (uintptr_t)start);
    const int32_t device = at == NULL ? -1 : at->device;
    pthread_rwlock_unlock(&registry->lock);
    return device;
}

bool tri_registry_find(struct tri_registry *registry, const void *data, size_t bytes,
                       struct tri_extent *out)
{
    const uintptr_t first = (uintptr_t)data;
    bool found = false;
    pthread_rwlock_rdlock(&registry->lock);
    const size_t i = upper_bound(registry, first);
    const struct tri_extent *below = i == 0 ? NULL : &registry->ranges[i - 1];
    const struct tri_extent *next = i == registry->count ? NULL : &registry->ranges[i];
    if (below != NULL && (first - below->start < below->bytes || first == below->start)) {
        *out = *below;
        found = true;
    } else if (next != NULL && next->start - first < bytes) {
        *out = *next;
        found = true;
    }
    pthread_rwlock_unlock(&registry->lock);
    return found;
}

int32_t tri_registry_visit(struct tri_registry *registry, const void *start,
                           void (*visit)(void *object, void *context), void *context)
{
    pthread_rwlock_rdlock(&registry->lock);
    const struct tri_extent *at = find_start(registry, (uintptr_t)start);
    const int32_t device = at == NULL ? -1 : at->device;
    if (at != NULL)
        visit((void *)at->start, context);
    pthread_rwlock_unlock(&registry->lock);
    return device;
}

void tri_registry_visit_all(struct tri_registry *registry, void (*visit)(void *object))
{
    pthread_rwlock_rdlock(&registry->lock);
    for (size_t i = 0; i < registry->count; i++)
        visit((void *)registry->ranges[i].start);
    pthread_rwlock_unlock(&registry->lock);
}
