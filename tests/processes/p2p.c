/* Sends and receives: piece by piece through the mail of each pair of ranks. A send has ended when
 * all of it has been received. */
#include <string.h>

#include "csrc/base/status.h"
#include "tests/processes/transport.h"

/* What a batch sends to one rank, or receives from it, in the order of the calls. */
struct flow {
    size_t at;   /* the call that is under way; n: none */
    size_t done; /* bytes of it */
    bool begun;
};

struct p2p {
    const struct tri_call *calls;
    size_t n;
    struct tri_transport *self;
    struct flow sends[PLACE_RANKS], receives[PLACE_RANKS];
};

/* Go on with the first call from `from` on that is of the flow. */
static void begin(struct flow *flow, const struct p2p *p2p, size_t from, enum tri_kind kind,
                  int32_t peer)
{
    while (from < p2p->n && (p2p->calls[from].kind != kind || p2p->calls[from].peer != peer))
        from++;
    *flow = (struct flow){.at = from};
}

/* The bytes of the piece that is next. */
static size_t next_piece(const struct p2p *p2p, const struct flow *flow)
{
    const struct tri_call *call = &p2p->calls[flow->at];
    const size_t left = call->count * trib_dtype_size(call->dtype) - flow->done;
    return left < PLACE_MAIL ? left : PLACE_MAIL;
}

static bool is_empty(const struct mail *mail)
{
    return atomic_load(&mail->received) == atomic_load(&mail->sent);
}

/* The next piece of what goes to `peer`, once the one before has been received. False: nothing to
 * do. */
static bool push(struct p2p *p2p, int32_t peer)
{
    struct flow *flow = &p2p->sends[peer];
    struct mail *mail = &p2p->self->place->mail[p2p->self->rank][peer];
    if (flow->at == p2p->n || !is_empty(mail))
        return false;
    const size_t bytes = next_piece(p2p, flow);
    if (flow->begun && bytes == 0) {
        begin(flow, p2p, flow->at + 1, TRI_SEND, peer);
        return true;
    }
    if (bytes != 0)
        memcpy(mail->data, (const unsigned char *)p2p->calls[flow->at].send + flow->done, bytes);
    mail->bytes = bytes;
    flow->done += bytes;
    flow->begun = true;
    atomic_fetch_add(&mail->sent, 1);
    return true;
}

/* The next piece from `peer`. One of another size than this rank expects stays there for ever. */
static bool pull(struct p2p *p2p, int32_t peer)
{
    struct flow *flow = &p2p->receives[peer];
    struct mail *mail = &p2p->self->place->mail[peer][p2p->self->rank];
    if (flow->at == p2p->n || is_empty(mail))
        return false;
    const size_t bytes = next_piece(p2p, flow);
    if (mail->bytes != bytes)
        return false;
    if (bytes != 0)
        memcpy((unsigned char *)p2p->calls[flow->at].recv + flow->done, mail->data, bytes);
    flow->done += bytes;
    atomic_fetch_add(&mail->received, 1);
    if (next_piece(p2p, flow) == 0)
        begin(flow, p2p, flow->at + 1, TRI_RECV, peer);
    return true;
}

/* Move what can move; true once all has. */
static bool advance(void *context)
{
    struct p2p *p2p = context;
    bool done = true;
    for (int32_t peer = 0; peer < p2p->self->size; peer++) {
        while (push(p2p, peer) || pull(p2p, peer))
            continue;
        done = done && p2p->sends[peer].at == p2p->n && p2p->receives[peer].at == p2p->n;
    }
    return done;
}

trib_status processes_p2p(const struct tri_call *calls, size_t n)
{
    struct p2p p2p = {.calls = calls, .n = n, .self = calls[0].transport};
    for (int32_t peer = 0; peer < p2p.self->size; peer++) {
        begin(&p2p.sends[peer], &p2p, 0, TRI_SEND, peer);
        begin(&p2p.receives[peer], &p2p, 0, TRI_RECV, peer);
    }
    return processes_wait(p2p.self, advance, &p2p);
}
