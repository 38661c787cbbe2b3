/* Opens the channels of a rank: connects to higher ranks, accepts lower ones. The caller holds the
 * lock of the service. */
#ifndef TRI_PEERS_CONNECT_H
#define TRI_PEERS_CONNECT_H

#include "csrc/peers/peer.h"

extern const struct tri_channel_owner tri_peers_channel_owner;

/* Listen; TRIB_ERR_SYSTEM if neither kind of socket can. */
trib_status tri_connect_listen(struct tri_peers *peers);
/* Accept from now on, and begin to connect to every rank that this one connects to. A failure goes
 * to tri_peers_fail. */
void tri_connect_start(struct tri_peers *peers);
/* Listen no longer, and give up what is not open. */
void tri_connect_stop(struct tri_peers *peers);
/* Write why connect is late. */
void tri_connect_late(struct tri_peers *peers);

#endif
