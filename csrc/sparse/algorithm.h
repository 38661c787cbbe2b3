/* What a sparse algorithm is: a name, how much memory it needs, and what one call does. Everything
 * an algorithm may use is in this file, run.h, link.h and cut.h. */
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
/* By name; NULL if there are none of that name. */
const struct tri_constants *tri_constants_find(const char *name);
const char *tri_constants_name(const struct tri_constants *constants);

/* What does not change from call to call, until k is set. The same on all ranks but `rank`. */
struct tri_sparse_params {
    int32_t rank, size;
    size_t count;      /* n */
    uint32_t k;        /* below count, but with dense, which runs where k is count; may be 0 */
    trib_dtype dtype;  /* of the gradient */
    trib_dtype acc;    /* of residual and sums: f32 or f64 */
    trib_dtype result; /* dtype, or acc */
    trib_dtype wire;   /* of chosen values: acc, or bf16 */
    bool average, entries, in_place;
    double decay;
    uint32_t chunk;
    const struct tri_constants *constants; /* NULL: the exact mode, or the algorithm's default */
};

/* Threshold modes choose as many entries as lie above the threshold, but no more than this: then the
 * largest of them; what is left out stays in the residual. */
static inline uint32_t tri_limit(const struct tri_sparse_params *params)
{
    const uint64_t limit = 4 * (uint64_t)params->k + 1024;
    return params->k == 0 ? 0 : limit < params->count ? (uint32_t)limit : (uint32_t)params->count;
}

/* A threshold that is used again, or estimated, may lie above everything: where gradients have become
 * smaller, or are not distributed as the estimate takes them to be. After so many calls in a row in which
 * nothing lay above it, the next one chooses exactly, and that counts as a fallback. Calls are counted that
 * came as far as an exchange of entries; what counts them (struct tri_idle) lies in host memory, and is kept. */
enum { TRI_IDLE_CALLS = 4 };

struct tri_idle {
    uint32_t calls; /* in a row, the last one among them */
};

static inline bool tri_idle_too_long(const struct tri_idle *idle)
{
    return idle->calls >= TRI_IDLE_CALLS;
}

/* After a call: `entries` lay above. */
static inline void tri_idle_count(struct tri_idle *idle, uint64_t entries)
{
    idle->calls = entries != 0 ? 0 : tri_idle_too_long(idle) ? idle->calls : idle->calls + 1;
}

/* Memory that an algorithm lays out. Run twice by the same code: with `base` NULL it only measures. */
struct tri_arena {
    char *base;
    size_t used;
};

/* `bytes` bytes, aligned to 256; NULL while measuring. */
void *tri_arena_take(struct tri_arena *arena, size_t bytes);
/* Entries with a count word of their own and room for `capacity` (0 is allowed). The lists of all ranks
 * together may be more than the field of that name can say, which then is UINT32_MAX. */
struct tri_entries tri_arena_entries(struct tri_arena *arena, size_t capacity, trib_dtype dtype);

/* A packet: header, then indices, then values, in one piece that one collective can send. */
struct tri_packet {
    char *data;
    uint32_t capacity; /* of entries */
    trib_dtype dtype;
};
struct tri_packet tri_arena_packets(struct tri_arena *arena, size_t n, uint32_t capacity,
                                    trib_dtype dtype);
/* Bytes of one packet, a multiple of 64. */
size_t tri_packet_bytes(uint32_t capacity, trib_dtype dtype);
/* Of them, bytes of entries: what counts as words. */
static inline size_t tri_entries_bytes(uint32_t capacity, trib_dtype dtype)
{
    return capacity * (sizeof(uint32_t) + trib_dtype_size(dtype));
}
/* Packet `i` of an array of them. Its entries' count is the header's. */
struct tri_header *tri_packet_header(const struct tri_packet *packets, size_t i);
struct tri_entries tri_packet_entries(const struct tri_packet *packets, size_t i);

struct tri_run;

/* Device memory and host memory (of `own`, without pointers in it). Either may be of 0 bytes. */
struct tri_kept {
    void *device, *host;
    size_t device_bytes, host_bytes;
};

struct tri_algorithm {
    const char *name;
    bool waits; /* fetches counts in its calls, so they cannot be captured in a graph */
    /* Host memory of one state; zeroed at creation, and when k is set or the state is reset. Pointers
     * from lay_out live in it, and what it has to remember from call to call. */
    size_t own_bytes;
    /* Lay out device memory in `own`. Its contents are anything at first. */
    void (*lay_out)(void *own, struct tri_arena *arena, const struct tri_sparse_params *params);
    /* Entries that all lists of one merge or cut hold together at most: sizes kernel scratch. */
    size_t (*entries)(const struct tri_sparse_params *params);
    /* The most entries of a result. */
    size_t (*capacity)(const struct tri_sparse_params *params);
    /* One call: choose, exchange, write the result, commit, settle. */
    trib_status (*run)(struct tri_run *run, void *own);

    /* The rest may be NULL. */

    /* The most entries that one select takes: sizes kernel scratch. NULL: tri_limit. */
    size_t (*selects)(const struct tri_sparse_params *params);
    /* Entries to choose in a call, where that is not params->k. */
    uint64_t (*k)(const struct tri_sparse_params *params);
    /* What an export takes along besides the residual, for a state of the same algorithm, k and number
     * of ranks (others begin their schedule anew): thresholds, boundaries. Its lengths depend on the
     * parameters alone. */
    struct tri_kept (*kept)(void *own);
    /* Could `kept` have held this? Bytes of an import, in host memory and unaligned, of the lengths that
     * kept says. There if kept is. */
    bool (*sound)(const void *device, const void *host, const struct tri_sparse_params *params);
    /* What runs under this name where constants are asked for. NULL: this. */
    const struct tri_algorithm *published;
};

/* Of foreign bytes, 8 of them: a threshold is a finite number of acc's type, not below 0. */
bool tri_sound_threshold(const void *bytes, const struct tri_sparse_params *params);
static inline bool tri_sound_idle(const struct tri_idle *idle)
{
    return idle->calls <= TRI_IDLE_CALLS;
}

/* Every algorithm but auto, NULL at the end (algorithms.c). */
extern const struct tri_algorithm *const tri_algorithms[];
const struct tri_algorithm *tri_algorithm_find(const char *name);

extern const struct tri_algorithm tri_sparse_dense, tri_sparse_topka, tri_sparse_topka2,
    tri_sparse_topkaopt, tri_sparse_topksa, tri_sparse_gtopk, tri_sparse_oktopk,
    tri_sparse_gaussiank, tri_sparse_gaussiankconcat, tri_sparse_gaussianksa, tri_sparse_srs,
    tri_sparse_shared, tri_sparse_chunked;
extern const struct tri_algorithm tri_sparse_oktopk_published;

/* What auto chooses for these parameters on this backend, and why, in a sentence (auto.c). `hosts`: that the
 * ranks are on. */
struct tri_choice {
    const struct tri_algorithm *algorithm;
    char reason[160];
};
struct tri_choice tri_sparse_auto(const struct tri_sparse_params *params,
                                  const struct tri_backend *backend, int32_t hosts);

#endif
