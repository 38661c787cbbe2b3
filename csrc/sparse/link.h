/* How the ranks of a sparse allreduce exchange what they chose. Every function counts its volume in
 * run->volume: `payload` bytes are entries, and make words, the last one of a message a whole one; what
 * else it sends makes bytes only. Each is a call that all ranks make, on the run's stream. */
#ifndef TRI_SPARSE_LINK_H
#define TRI_SPARSE_LINK_H

#include "csrc/sparse/run.h"

/* A few calls that go to the backend as one. */
enum { TRI_LINK_CALLS = 8 * TRI_MAX_LISTS };

/* `bytes` of each rank, in rank order; in place if send is block `rank` of recv. */
trib_status tri_link_allgather(struct tri_run *run, const void *send, void *recv, size_t bytes,
                               size_t payload);
/* `bytes` of `root` to all; `data` on all ranks. */
trib_status tri_link_broadcast(struct tri_run *run, void *data, size_t bytes, size_t payload,
                               int32_t root);
/* `count` elements added up over the ranks, in place. */
trib_status tri_link_allreduce(struct tri_run *run, void *data, size_t count, trib_dtype dtype,
                               bool payload);
/* The same, out of place. */
trib_status tri_link_allreduce_to(struct tri_run *run, const void *send, void *recv, size_t count,
                                  trib_dtype dtype, bool payload);

/* Collectives (of the functions above, and tri_link_headers; TRI_RUN_GROUP at most) between begin and
 * end go to the backend as one. None may need what another one brings. */
void tri_link_begin(struct tri_run *run);
trib_status tri_link_end(struct tri_run *run);

/* One message to one rank, or from it; peer -1: none, and none of 0 bytes (both sides know). All
 * messages of one call go side by side. What a rank sends itself is copied, the first send to the first
 * such receive, and is no volume. */
struct tri_message {
    int32_t peer;
    void *data;
    size_t bytes, payload;
};
trib_status tri_link_exchange(struct tri_run *run, const struct tri_message *sends, size_t nsends,
                              const struct tri_message *receives, size_t nreceives);

/* Every rank's header, made by each in scalars.header (nonfinite, and count if anybody looks at it), in
 * `headers` (size of them): for algorithms that have no packet to put it in front of. */
trib_status tri_link_headers(struct tri_run *run, struct tri_header *headers);

/* ---- what waits: on a stream-ordered backend, for the stream */

/* Device memory to host memory: the one wait of a call. Fails if an abort overtook it, for then they
 * are garbage. */
trib_status tri_link_fetch(struct tri_run *run, void *dst, const void *src, size_t bytes);

/* Lists of any length: rank r's counts[r] entries (host memory, known to all) come together in
 * `out`, rank after rank without gaps; send->count is not looked at. out->count, if not NULL, is
 * written. */
trib_status tri_link_allgather_entries(struct tri_run *run, const struct tri_entries *send,
                                       const uint32_t *counts, const struct tri_entries *out);

/* ---- small copies on the stream */

/* Host memory (read before this returns) or device memory to device memory. */
trib_status tri_link_put(struct tri_run *run, void *dst, const void *src, size_t bytes);

/* A part of a list whose length is known: entries [from, from + n). */
struct tri_entries tri_entries_part(const struct tri_entries *entries, size_t from, size_t n);

#endif
