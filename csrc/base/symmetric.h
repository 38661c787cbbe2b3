/* Symmetric memory: what each rank of a communicator has of one allocation that all of them made, and
 * the list of those of a rank. Nothing here is thread-safe. */
#ifndef TRI_BASE_SYMMETRIC_H
#define TRI_BASE_SYMMETRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tri_symmetric_rank {
    char *here;      /* where this process has the memory of that rank; NULL: not yet */
    uint64_t there;  /* where the process of that rank has this rank's */
    uint64_t handle; /* the backend's */
};

/* One allocation. Whoever calls create frees it, with free(). */
struct tri_symmetric {
    struct tri_symmetric *next;
    uint64_t number; /* among those of its communicator, the same on all ranks */
    size_t bytes;    /* of each rank */
    size_t mapped;   /* the same, or what the backend has made of it */
    void *window;    /* of the backend's library, with which it is registered; NULL: it is not */
    bool own;        /* the library's, for itself */
    bool spare;      /* that, and this rank uses it no more */
    int32_t rank, size;
    struct tri_symmetric_rank of[]; /* [size] */
};

/* NULL if memory is short. */
struct tri_symmetric *tri_symmetric_create(int32_t rank, int32_t size, size_t bytes);

void tri_symmetric_add(struct tri_symmetric **list, struct tri_symmetric *memory);
/* The newest, which is in it no longer; NULL: there is none. */
struct tri_symmetric *tri_symmetric_pop(struct tri_symmetric **list);
void tri_symmetric_remove(struct tri_symmetric **list, const struct tri_symmetric *memory);

/* Spare memory is in the order of its bytes, and of its numbers where they are equal. The first one at `from` or
 * behind it; NULL: there is none. */
struct tri_symmetric_place {
    uint64_t bytes, number;
};
struct tri_symmetric *tri_symmetric_spare(struct tri_symmetric *list,
                                          struct tri_symmetric_place from);
static inline bool tri_symmetric_before(struct tri_symmetric_place a, struct tri_symmetric_place b)
{
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.number < b.number;
}

/* The sum of what this rank has mapped of its own. */
uint64_t tri_symmetric_bytes(const struct tri_symmetric *list);

/* The one in which all of [data, data + bytes) lies, as this rank has it; NULL: there is none. */
struct tri_symmetric *tri_symmetric_find(struct tri_symmetric *list, const void *data,
                                         size_t bytes);

/* Where this process has the part of `rank` that corresponds to `data`, which lies in `memory`. */
static inline void *tri_symmetric_of(const struct tri_symmetric *memory, const void *data,
                                     int32_t rank)
{
    return memory->of[rank].here + ((const char *)data - memory->of[memory->rank].here);
}

#endif
