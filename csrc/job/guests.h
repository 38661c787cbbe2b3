/* Who has come to a meeting, and in words who has not. The service's lock guards everything here. */
#ifndef TRI_JOB_GUESTS_H
#define TRI_JOB_GUESTS_H

#include "csrc/job/terms.h"
#include "csrc/peers/address.h"
#include "csrc/peers/channel.h"

struct tri_guest {
    struct tri_channel *channel;     /* of one that has come and is there; NULL of rank 0 always */
    bool left;                       /* it had come, and its connection ended */
    bool refused;                    /* somebody who claimed to be it, and could not prove it */
    struct tri_peer_address address; /* of the last that came */
};

struct tri_guests {
    const struct tri_terms *terms;
    struct tri_guest *of; /* [size] */
    int32_t size, here;   /* ranks; how many have a channel */
    int32_t port;         /* where rank 0 listens */
    int accept_error;     /* why rank 0 could not accept a connection, or 0 */
};

/* False: no memory. */
bool tri_guests_begin(struct tri_guests *guests, const struct tri_terms *terms);
void tri_guests_end(struct tri_guests *guests); /* their channels too */

/* Have all come but rank 0, which is there? */
bool tri_guests_complete(const struct tri_guests *guests);
/* The ranks that are missing, as TRIB_ERR_TIMEOUT. `rank`: whose time is over; of rank 0 it is that of
 * the meeting. */
void tri_guests_say_missing(struct tri_peer_abort *out, const struct tri_guests *guests,
                            int32_t rank);

#endif
