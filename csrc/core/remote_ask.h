/* How far the ranks in other processes have got: a rank asks them, and answers them, over its peers. */
#ifndef TRI_CORE_REMOTE_ASK_H
#define TRI_CORE_REMOTE_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/core/remote_message.h"
#include "csrc/peers/address.h"
#include "csrc/peers/peers.h"

struct tri_remote;

/* ------------------------------------------------------------------------------------ questions */

/* Ask all ranks how far they have got, and for their call `collective` (struct tri_recorded). Any
 * thread; never waits. */
void tri_remote_ask(struct tri_remote *remote, uint64_t collective);
/* When they were last asked, if that was about `collective`; else 0. */
uint64_t tri_remote_asked_ns(struct tri_remote *remote, uint64_t collective);
/* Has every rank that can answer the last question done so, or taken too long? */
bool tri_remote_answered(struct tri_remote *remote);

/* ------------------------------------------------------------------------------------ knowledge */

/* What is known of one rank. */
struct tri_remote_rank {
    enum tri_remote_state state;
    struct tri_peer_text who; /* "rank 3 (process 4711 on a)" */
    char host[TRI_PEER_HOST];
    int32_t process;
    enum tri_peer_way way;
    char death[TRI_DETAIL_SIZE / 2]; /* "rank 3 (process 4711 on a) was killed by ..." */
    bool answered;                   /* the last question, or said farewell */
    uint64_t said_ns;                /* when it sent `said`; 0: never */
    struct tri_remote_message said;
};
/* Any thread. */
void tri_remote_look(struct tri_remote *remote, int32_t rank, struct tri_remote_rank *out);

bool tri_remote_is_dead(struct tri_remote *remote, int32_t rank);

/* Will the call `collective` wait in vain for `rank`, as far as is known: is it dead, has it left
 * before, or has it answered that it has not made it? */
bool tri_remote_lacks(struct tri_remote *remote, int32_t rank, uint64_t collective);
/* Has it been asked about that call, and not answered? */
bool tri_remote_is_silent(struct tri_remote *remote, int32_t rank, uint64_t collective);
/* The ranks that have left and have not made it, ascending: the first `capacity` to `out`. Returns
 * how many they are. */
int32_t tri_remote_left_before(struct tri_remote *remote, uint64_t collective, int32_t *out,
                               int32_t capacity);

#endif
