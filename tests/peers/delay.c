/* Word of an abort that takes its time. */
#define _POSIX_C_SOURCE 200809L
#include "tests/peers/delay.h"

#include <stdatomic.h>

#include "csrc/peers/peers.h"
#include "tests/check.h"

static _Atomic int delay_ms, answer_ms;

trib_status __real_tri_peers_send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                                  const void *bytes, size_t length);
trib_status __wrap_tri_peers_send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                                  const void *bytes, size_t length);

trib_status __wrap_tri_peers_send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                                  const void *bytes, size_t length)
{
    const int ms = type == TRI_PEER_ABORT      ? atomic_load(&delay_ms)
                   : type == TRI_PEER_PROGRESS ? atomic_load(&answer_ms)
                                               : 0;
    if (ms > 0)
        check_sleep_ms(ms);
    return __real_tri_peers_send(peers, rank, type, bytes, length);
}

void delay_aborts(int ms)
{
    atomic_store(&delay_ms, ms);
}

void delay_answers(int ms)
{
    atomic_store(&answer_ms, ms);
}
