/* Symmetric memory: allocations that all ranks of a communicator made. */
#include "csrc/base/symmetric.h"

#include <stdlib.h>

struct tri_symmetric *tri_symmetric_create(int32_t rank, int32_t size, size_t bytes)
{
    struct tri_symmetric *made =
        calloc(1, sizeof *made + (size_t)size * sizeof(struct tri_symmetric_rank));
    if (made == NULL)
        return NULL;
    made->bytes = made->mapped = bytes;
    made->rank = rank;
    made->size = size;
    return made;
}

void tri_symmetric_add(struct tri_symmetric **list, struct tri_symmetric *memory)
{
    memory->next = *list;
    *list = memory;
}

struct tri_symmetric *tri_symmetric_pop(struct tri_symmetric **list)
{
    struct tri_symmetric *newest = *list;
    if (newest != NULL)
        *list = newest->next;
    return newest;
}

void tri_symmetric_remove(struct tri_symmetric **list, const struct tri_symmetric *memory)
{
    while (*list != memory)
        list = &(*list)->next;
    *list = memory->next;
}

struct tri_symmetric *tri_symmetric_spare(struct tri_symmetric *list,
                                          struct tri_symmetric_place from)
{
    struct tri_symmetric *found = NULL;
    struct tri_symmetric_place first = {UINT64_MAX, UINT64_MAX};
    for (; list != NULL; list = list->next) {
        const struct tri_symmetric_place place = {list->bytes, list->number};
        if (!list->spare || tri_symmetric_before(place, from) ||
            !tri_symmetric_before(place, first))
            continue;
        found = list;
        first = place;
    }
    return found;
}

uint64_t tri_symmetric_bytes(const struct tri_symmetric *list)
{
    uint64_t bytes = 0;
    for (; list != NULL; list = list->next)
        bytes += list->mapped;
    return bytes;
}

struct tri_symmetric *tri_symmetric_find(struct tri_symmetric *list, const void *data, size_t bytes)
{
    for (; list != NULL; list = list->next) {
        const uintptr_t begin = (uintptr_t)list->of[list->rank].here;
        if ((uintptr_t)data >= begin && (uintptr_t)data - begin < list->bytes &&
            bytes <= list->bytes - ((uintptr_t)data - begin))
            return list;
    }
    return NULL;
}
