/* One other rank as this rank sees it, and its end; the object of peers.h from the inside. The lock
 * of the service guards all fields, and the caller holds it. */
#ifndef TRI_PEERS_PEER_H
#define TRI_PEERS_PEER_H

#include "csrc/peers/accept.h"
#include "csrc/peers/address.h"
#include "csrc/peers/channel.h"
#include "csrc/peers/setup.h"

enum tri_peer_state {
    TRI_PEER_ABSENT,  /* no open channel yet */
    TRI_PEER_PRESENT, /* its channel is open */
    TRI_PEER_LOST,    /* its connection ended; a moment later its process may say how */
    TRI_PEER_ENDED    /* dead or left, and said so */
};

struct tri_peer {
    struct tri_peers *peers;
    struct tri_peer_address address;
    enum tri_peer_way way;
    enum tri_peer_state state;
    struct tri_channel *channel;     /* open, or this end's attempt to connect; or NULL */
    struct tri_service_item process; /* its pidfd, and how long a lost peer may take to end */
    bool exited;                     /* the pidfd says so */
    int lost_by;                     /* the error that ended the connection, or 0 */

    struct tri_service_item retry; /* connect.c: the next attempt */
    int attempts;                  /* so far; each takes the next address */
    uint32_t refused;              /* addresses where nobody listens, or a stranger: one bit each */
    int last_error;                /* why the last attempt failed */
    bool stranger;                 /* one that claimed to be it, or it says so of us, was refused */
};

struct tri_peers {
    struct tri_channel_family family;
    struct tri_peers_callbacks callbacks;
    void *context;
    uint32_t flags;
    struct tri_peer_address own;
    struct tri_peer *of; /* [size], the own rank included */

    struct tri_accept accept;
    bool connecting;     /* tri_peers_connect waits */
    int32_t missing;     /* channels that it waits for */
    trib_status failure; /* of connect */
    char failure_text[TRI_DETAIL_SIZE];

    bool calling; /* a callback runs */
    bool closing; /* none begins any more, but the last: */
    bool leaving; /* that has begun */
    bool bye;     /* has been said; nothing can be sent any more */

    struct tri_peers *next; /* of all in this process */
};

/* connect fails, unless it has already, or has every channel. */
void tri_peers_fail(struct tri_peers *peers, trib_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Watch the peer's process, if the system allows it. False if it has ended. */
bool tri_peer_watch(struct tri_peer *peer);
/* Forget its process. */
void tri_peer_unwatch(struct tri_peer *peer);

/* Its channel said bye, or ended without. Both destroy the channel and may release the lock. */
void tri_peer_left(struct tri_peer *peer);
void tri_peer_lost(struct tri_peer *peer, int error);
/* Its process has ended. May release the lock. */
void tri_peer_died(struct tri_peer *peer);

/* Hand a message to the owner. Releases the lock meanwhile. */
void tri_peer_deliver(struct tri_peer *peer, const struct tri_peer_message *message, int fd);

#endif
