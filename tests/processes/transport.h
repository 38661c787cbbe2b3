/* One rank of the backend "processes". */
#ifndef TRI_TESTS_PROCESSES_TRANSPORT_H
#define TRI_TESTS_PROCESSES_TRANSPORT_H

#include "csrc/backend.h"
#include "tests/processes/place.h"

/* Freed by nobody: a call that is stuck on a stream may run at any time. */
struct tri_transport {
    struct tri_transport *next;  /* of all of this process */
    struct tri_transport *inner; /* host's, in a communicator of the ranks of this process: it runs
                                  * this rank's submissions in order, and has the abort state */
    struct trib_abort *state;
    const uint32_t *flag; /* of that state */
    struct place *place;
    int32_t rank, size, here, device;
    uint64_t pieces;       /* of collectives so far; for the thread that runs this rank's calls */
    uint64_t splits;       /* so far; for the thread that owns the communicator */
    struct shared *shared; /* share.c; NULL: nothing */
    struct tri_symmetric *symmetric,
        *taken; /* symmetric.c: those of this rank, and the backend's */
    bool asked; /* for that one */
};

/* Wait until `holds(context)`, or an abort: then its status. */
trib_status processes_wait(const struct tri_transport *self, bool (*holds)(void *context),
                           void *context);

extern const struct tri_backend tri_backend_host;

/* open.c */
trib_status processes_id_create(trib_id *out);
bool processes_id_is_mine(const trib_id *id);
trib_status processes_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                           int32_t size, int32_t device, const struct tri_config *config,
                           uint32_t timeout_ms);
trib_status processes_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                 const struct tri_config *config, uint32_t timeout_ms);
trib_status processes_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                            int32_t key, const struct tri_config *config, uint32_t timeout_ms);

/* backend.c: from now on ranks share memory. */
void processes_share(const struct tri_share_ops *ops,
                     uint64_t (*bytes)(const struct tri_transport *self));

/* collectives.c */
trib_status processes_collective(const struct tri_call *calls, size_t n);
/* p2p.c: the sends and receives among the calls */
trib_status processes_p2p(const struct tri_call *calls, size_t n);

#endif
