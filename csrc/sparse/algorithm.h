/* A sparse algorithm: a name, the memory it needs, and the work of one call. An algorithm uses this
 * file, run.h, link.h, gather.h and the files that algorithms share (csrc/README.md lists them), and nothing
 * else. */
#ifndef TRI_SPARSE_ALGORITHM_H
#define TRI_SPARSE_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/base/status.h"
#include "kernels/sparse.h"

/* The constants of the published code, which tune its thresholds (published/constants.h). */
struct tri_constants;
/* By name; NULL: there are none of that name. */
const struct tri_constants *tri_constants_find(const char *name);
const char *tri_constants_name(const struct tri_constants *constants);

/* The parameters of a state: constant from call to call until k is set, and the same on all ranks,
 * except for `rank`. */
struct tri_sparse_params {
    int32_t rank, size;
    size_t count;      /* n */
    uint32_t k;        /* may be 0; count only with dense, which replaces any algorithm there */
    trib_dtype dtype;  /* of the gradient */
    trib_dtype acc;    /* of residual and sums: f32 or f64 */
    trib_dtype result; /* dtype, or acc */
    trib_dtype wire;   /* of chosen values: acc, or bf16 */
    bool average, entries;
    bool in_place; /* the caller's gradient is acc and residual; never with momentum */
    double decay;
    double momentum;        /* 0: there is no velocity */
    double clip;            /* to this norm of one rank's gradient; 0: never */
    bool masks;             /* what is applied leaves the velocity */
    bool velocity_in_place; /* the caller's gradient is the new velocity */
    bool revocable;         /* a commit may take a call back: never in place, no entries */
    uint32_t chunk;
    size_t near_from;               /* bytes of a packet from which on it stays (gather.h) */
    uint8_t host_of[TRI_MAX_LISTS]; /* of each rank (hosts.h) */
    bool inside; /* the ranks of each host have collectives of their own: the run's `inside` */
    const struct tri_constants *constants; /* NULL: the exact mode, or the algorithm's default */
};

/* Algorithms with a threshold choose all entries above it, but at most this many: the largest. The
 * others stay in the residual. */
static inline uint32_t tri_limit(const struct tri_sparse_params *params)
{
    const uint64_t limit = 4 * (uint64_t)params->k + 1024;
    return params->k == 0 ? 0 : limit < params->count ? (uint32_t)limit : (uint32_t)params->count;
}

/* May sums travel in bf16, too? There is a second buffer, for a call that is not applied, and the
 * result is dense. */
static inline bool tri_is_narrow(const struct tri_sparse_params *params)
{
    return params->wire != params->acc && !params->in_place && !params->entries;
}

/* A threshold that is reused or estimated may lie above everything: gradients have become smaller,
 * or are not distributed as the estimate assumes. After so many calls in a row without an entry
 * above it, the next call chooses exactly, which counts as a fallback. Only calls that exchange
 * entries are counted. struct tri_idle lies in host memory, and exports include it. */
enum { TRI_IDLE_CALLS = 4 };

struct tri_idle {
    uint32_t calls; /* in a row, up to the last one */
};

static inline bool tri_idle_too_long(const struct tri_idle *idle)
{
    return idle->calls >= TRI_IDLE_CALLS;
}

/* After a call: so many `entries` were above the threshold. */
static inline void tri_idle_count(struct tri_idle *idle, uint64_t entries)
{
    idle->calls = entries != 0 ? 0 : tri_idle_too_long(idle) ? idle->calls : idle->calls + 1;
}

/* Memory that an algorithm lays out: this rank's, and some in `near`, which the other ranks read. The code runs
 * twice: with `base` NULL it only measures. `near` NULL: there is none. */
struct tri_arena {
    char *base, *near;
    size_t used, near_used;
};

/* `bytes` bytes, aligned to 256; NULL while it measures. */
void *tri_arena_take(struct tri_arena *arena, size_t bytes);
void *tri_arena_take_near(struct tri_arena *arena, size_t bytes);
/* Entries with a count of their own and memory for `capacity` (may be 0). The field of that name is
 * UINT32_MAX where the lists of all ranks together exceed it. */
struct tri_entries tri_arena_entries(struct tri_arena *arena, size_t capacity, trib_dtype dtype);
/* Entries [from, from + n) of a list, without a count. */
struct tri_entries tri_entries_part(const struct tri_entries *entries, size_t from, size_t n);

/* A packet: header, then indices, then values, contiguous, so that one collective sends it. */
struct tri_packet {
    char *data;
    uint32_t capacity; /* of entries */
    trib_dtype dtype;
};
struct tri_packet tri_arena_packets(struct tri_arena *arena, size_t n, uint32_t capacity,
                                    trib_dtype dtype);
/* Bytes of one packet, a multiple of 64. */
size_t tri_packet_bytes(uint32_t capacity, trib_dtype dtype);
/* Those of them that are entries, and count as words. */
static inline size_t tri_entries_bytes(uint32_t capacity, trib_dtype dtype)
{
    return capacity * (sizeof(uint32_t) + trib_dtype_size(dtype));
}
/* Packet `i` of an array. The count of its entries is that of its header. */
struct tri_header *tri_packet_header(const struct tri_packet *packets, size_t i);
struct tri_entries tri_packet_entries(const struct tri_packet *packets, size_t i);

struct tri_run;

/* The memory within `own` that a snapshot saves: on the device, and on the host (without pointers).
 * Either may have 0 bytes. */
struct tri_persistent {
    void *device, *host;
    size_t device_bytes, host_bytes;
};

struct tri_algorithm {
    const char *name;
    bool waits;  /* its calls fetch counts, so a graph cannot capture them */
    bool inside; /* its calls use collectives inside hosts, where there are any */
    /* Host memory of one state: the pointers from lay_out, and what the algorithm remembers from
     * call to call. Zeroed at creation, when k is set, and at a reset. */
    size_t own_bytes;
    /* Lay out device memory in `own`; its contents are undefined. */
    void (*lay_out)(void *own, struct tri_arena *arena, const struct tri_sparse_params *params);
    /* The most entries in all lists of one merge or cut; determines the scratch of kernels. */
    size_t (*entries)(const struct tri_sparse_params *params);
    /* The most entries of a result. */
    size_t (*capacity)(const struct tri_sparse_params *params);
    /* One call: choose, exchange, write the result, decide, update the residual. */
    trib_status (*run)(struct tri_run *run, void *own);

    /* The following may be NULL. */

    /* In its place where tri_is_narrow. */
    const struct tri_algorithm *narrow;

    /* The most entries of one select; determines the scratch of kernels. NULL: tri_limit. */
    size_t (*selects)(const struct tri_sparse_params *params);
    /* Entries that a call chooses, as the statistics report them. NULL: params->k. */
    uint64_t (*k)(const struct tri_sparse_params *params);
    /* The content of an export besides the residual, such as thresholds. A state of the same
     * algorithm, k and number of ranks imports it; any other starts its schedule anew. Its sizes
     * depend on the parameters alone. */
    struct tri_persistent (*persistent)(void *own);
    /* True if `persistent` can have had this content: bytes of an import of its sizes, in host
     * memory, unaligned. Set if persistent is. */
    bool (*valid)(const void *device, const void *host, const struct tri_sparse_params *params);
    /* The algorithm that runs under this name if the options name constants. NULL: this one. */
    const struct tri_algorithm *published;
};

/* Of 8 imported bytes: a threshold is a finite number of acc's type, not below 0. */
bool tri_valid_threshold(const void *bytes, const struct tri_sparse_params *params);
static inline bool tri_valid_idle(const struct tri_idle *idle)
{
    return idle->calls <= TRI_IDLE_CALLS;
}

/* All algorithms except auto, then NULL (algorithms.c). */
extern const struct tri_algorithm *const tri_algorithms[];
const struct tri_algorithm *tri_algorithm_find(const char *name);

extern const struct tri_algorithm tri_sparse_dense, tri_sparse_dense_narrow, tri_sparse_topka,
    tri_sparse_topka2, tri_sparse_topkaopt, tri_sparse_topksa, tri_sparse_gtopk, tri_sparse_oktopk,
    tri_sparse_gaussiank, tri_sparse_gaussiankconcat, tri_sparse_gaussianksa, tri_sparse_srs,
    tri_sparse_shared, tri_sparse_chunked, tri_sparse_hier;
extern const struct tri_algorithm tri_sparse_oktopk_published;

/* What auto's model knows of the machine. */
struct tri_machine_speed {
    struct tri_speed device;   /* the backend's */
    double latency, bandwidth; /* of the link (struct tri_measured); or the backend's, */
    bool measured;             /* if this is false */
    int32_t hosts;             /* on which the ranks run */
};

/* auto's choice, and the reason as users read it (auto.c). */
struct tri_choice {
    const struct tri_algorithm *algorithm;
    char reason[256];
};
struct tri_choice tri_sparse_auto(const struct tri_sparse_params *params,
                                  const struct tri_machine_speed *speed);

#endif
