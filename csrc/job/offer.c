/* Rank 0's side of a meeting: it listens, and hands every rank the id once all have come.
 *
 * A rank has come when it has proved itself and said who it is; if its connection ends before all
 * have come, it has not. So all ranks get the id or, when the time is over, all that are there get
 * the names of those that are not. The service's lock guards everything here. */
#define _GNU_SOURCE
#include "csrc/job/offer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/job/ask.h"
#include "csrc/job/place.h"
#include "csrc/peers/accept.h"
#include "csrc/peers/address.h"
#include "csrc/peers/socket.h"

enum { LINGER_MS = 2000 }; /* for what was said last to be read */

struct guest {
    struct tri_channel *channel; /* NULL: not there. Of rank 0 always */
    bool arrived;
    bool refused; /* somebody who claimed to be it, and could not prove it */
    struct tri_peer_address address;
};

struct offer {
    const struct tri_terms *terms;
    struct tri_channel_family family;
    struct tri_accept accept;
    struct guest *of;          /* [family.size] */
    struct tri_channel *extra; /* open ones of ranks that have one */
    int32_t missing;           /* ranks that have not arrived */
    int32_t open;              /* channels in `of` */
    bool over;                 /* the last word has been said */
    int32_t port;
};

/* ------------------------------------------------------------------------------------- last words */

/* Queues it; the channel lives until the other end closes it. */
static void dismiss(struct tri_channel *channel, const struct tri_peer_abort *why)
{
    uint8_t bytes[TRI_PEER_ABORT_MAX];
    const size_t n = tri_peer_abort_pack(bytes, why);
    (void)tri_channel_send(channel, TRI_PEER_ABORT, bytes, n, -1);
    tri_channel_bye(channel);
}

static void say(struct tri_peer_abort *out, trib_status status, const char *text)
{
    memset(out, 0, sizeof *out);
    out->status = status;
    tri_text_printable(out->text, (const uint8_t *)text, strnlen(text, sizeof out->text - 1));
}

/* `address` is that of a process with the number of one that has come. */
static void dismiss_extra(struct offer *offer, struct tri_channel *channel,
                          const struct tri_peer_address *address)
{
    const struct guest *first = &offer->of[channel->wire.peer];
    struct tri_peer_abort why;
    (void)tri_fail(TRIB_ERR_INVALID_USAGE,
                   "trib_job_meet: two processes have come as rank %d of %d: %s, and %s, which is "
                   "refused; every process needs a rank of its own",
                   channel->wire.peer, offer->family.size,
                   first->arrived ? tri_peer_text(&first->address).text : "another one",
                   tri_peer_text(address).text);
    say(&why, TRIB_ERR_INVALID_USAGE, tri_detail());
    tri_log(TRIB_LOG_WARN, "%s", why.text);
    dismiss(channel, &why);
}

/* ------------------------------------------------------------------ what channels say of themselves */

static bool admits(struct tri_channel *channel)
{
    const struct offer *offer = channel->family->context;
    return channel->wire.peer < offer->family.size && !offer->over;
}

static void opened(struct tri_channel *channel)
{
    struct offer *offer = channel->family->context;
    struct guest *guest = &offer->of[channel->wire.peer];
    (void)tri_accept_take(&offer->accept, channel);
    if (guest->channel == NULL && channel->wire.peer != 0) {
        guest->channel = channel;
        offer->open++;
    } else {
        channel->next = offer->extra;
        offer->extra = channel;
    }
}

static void arrive(struct offer *offer, struct tri_channel *channel,
                   const struct tri_peer_address *address)
{
    struct guest *guest = &offer->of[channel->wire.peer];
    struct tri_peer_abort why;
    if (tri_peer_address_check(address, channel->wire.peer, offer->family.size) != TRIB_OK) {
        say(&why, TRIB_ERR_MISMATCH, tri_detail());
        dismiss(channel, &why);
    } else if (guest->channel != channel) {
        dismiss_extra(offer, channel, address);
    } else if (!guest->arrived) {
        guest->arrived = true;
        guest->address = *address;
        offer->missing--;
        tri_service_wake();
    }
}

static void message(struct tri_channel *channel, const struct tri_peer_message *message, int fd)
{
    struct tri_peer_address address;
    if (fd >= 0)
        (void)close(fd);
    if (message->type != TRI_PEER_ARRIVAL)
        return;
    memcpy(&address, message->payload, sizeof address);
    arrive(channel->family->context, channel, &address);
}

/* It never opened. */
static void stranger_ended(struct offer *offer, const struct tri_channel *channel,
                           enum tri_channel_end why)
{
    const int32_t rank = channel->wire.peer;
    if (why != TRI_CHANNEL_REFUSED)
        return;
    if (rank >= 0 && rank < offer->family.size)
        offer->of[rank].refused = true;
    if (tri_accept_logs(&offer->accept))
        tri_log(
            TRIB_LOG_WARN,
            "trib_job_meet: refused a process that claims to be rank %d: it has another secret, "
            "job or number of ranks",
            rank);
}

static void guest_ended(struct offer *offer, struct guest *guest)
{
    guest->channel = NULL;
    offer->open--;
    offer->missing += guest->arrived && !offer->over;
    guest->arrived = guest->arrived && offer->over;
    tri_service_wake();
}

static void ended(struct tri_channel *channel, enum tri_channel_end why, int error)
{
    struct offer *offer = channel->family->context;
    struct tri_channel **link = &offer->extra;
    (void)error;
    if (tri_accept_take(&offer->accept, channel)) {
        stranger_ended(offer, channel, why);
    } else if (offer->of[channel->wire.peer].channel == channel) {
        guest_ended(offer, &offer->of[channel->wire.peer]);
    } else {
        while (*link != channel)
            link = &(*link)->next;
        *link = channel->next;
    }
    tri_channel_destroy(channel);
}

static const struct tri_channel_owner owner = {
    .admits = admits, .opened = opened, .message = message, .ended = ended};

/* -------------------------------------------------------------------------------------- listening */

/* At the first port that is free. A port that another rank 0 of this job has is the end. */
static trib_status listen_at_one(struct offer *offer)
{
    const trib_job *job = offer->terms->job;
    const struct tri_ports ports = tri_place_ports(job);
    int fd = -1;
    for (int32_t port = ports.first; port <= ports.last; port++) {
        struct tri_peer_address own = {.port = (uint16_t)port};
        fd = tri_socket_listen_tcp(&own, tri_place_is_loopback(job->host));
        if (fd >= 0) {
            offer->port = port;
            tri_accept_set(&offer->accept, false, fd);
            return TRIB_OK;
        }
        if (tri_ask_other(offer->terms, (uint16_t)port))
            return TRIB_ERR_INVALID_USAGE;
    }
    return tri_fail(TRIB_ERR_SYSTEM,
                    "trib_job_meet: rank 0 of %d cannot listen at port %d to %d: %s; set "
                    "TRIBUTARY_ADDRESS to host:port with a port that is free on its host",
                    job->n_ranks, ports.first, ports.last, tri_error_text(-fd).text);
}

/* ------------------------------------------------------------------------------------------ the end */

/* "ranks 1, 4 to 7" of those that have not come. */
static void name_missing(struct tri_text *out, const struct offer *offer)
{
    const char *comma = "";
    tri_text_add(out, "%s ", offer->missing == 1 ? "rank" : "ranks");
    for (int32_t rank = 1; rank < offer->family.size; rank++) {
        int32_t last = rank;
        if (offer->of[rank].arrived)
            continue;
        while (last + 1 < offer->family.size && !offer->of[last + 1].arrived)
            last++;
        tri_text_add(out, "%s%d", comma, rank);
        if (last > rank)
            tri_text_add(out, "%s%d", last == rank + 1 ? ", " : " to ", last);
        comma = ", ";
        rank = last;
    }
}

static int32_t first_refused(const struct offer *offer)
{
    for (int32_t rank = 0; rank < offer->family.size; rank++)
        if (offer->of[rank].refused && !offer->of[rank].arrived)
            return rank;
    return -1;
}

static void say_late(struct tri_peer_abort *out, const struct offer *offer)
{
    char room[TRI_DETAIL_SIZE / 2];
    struct tri_text names = {room, 0, sizeof room, false, false};
    struct tri_text text = {out->text, 0, sizeof out->text, false, false};
    const int32_t refused = first_refused(offer);
    memset(out, 0, sizeof *out);
    out->status = TRIB_ERR_TIMEOUT;
    for (int32_t rank = 1; rank < offer->family.size && out->n < TRI_LOST_MAX; rank++)
        if (!offer->of[rank].arrived)
            out->lost[out->n++] = rank;
    name_missing(&names, offer);
    tri_text_add(
        &text, "trib_job_meet: %s of %d did not come to rank 0 at %s, port %d, within %u ms", room,
        offer->family.size, offer->terms->job->host, offer->port, offer->terms->timeout_ms);
    if (refused >= 0)
        tri_text_add(&text,
                     "; one that claimed to be rank %d was refused: it has another "
                     "TRIBUTARY_SECRET, job or number of ranks",
                     refused);
    tri_text_add(&text, "; do they run, and can they connect to that host and port?");
}

/* Say `why`, or hand out `id` if that is NULL, and wait until it has been read. */
static trib_status finish(struct offer *offer, const trib_id *id, const struct tri_peer_abort *why)
{
    const uint64_t until_ns = tri_deadline_ns(LINGER_MS);
    trib_status status = TRIB_OK;
    offer->over = true;
    tri_accept_end(&offer->accept);
    for (int32_t rank = 1; rank < offer->family.size; rank++) {
        struct tri_channel *channel = offer->of[rank].channel;
        if (channel == NULL)
            continue;
        if (why != NULL) {
            dismiss(channel, why);
            continue;
        }
        if (tri_channel_send(channel, TRI_PEER_ID, id, sizeof *id, -1) != TRIB_OK)
            status = TRIB_ERR_OUT_OF_MEMORY;
        tri_channel_bye(channel);
    }
    while (offer->open > 0 && tri_now_ns() < until_ns)
        (void)tri_service_wait(until_ns);
    return status;
}

static trib_status meet(struct offer *offer, const trib_id *id)
{
    struct tri_peer_abort why;
    TRI_TRY(listen_at_one(offer));
    const int error = tri_accept_start(&offer->accept, false);
    if (error != 0)
        return tri_fail(TRIB_ERR_SYSTEM, "trib_job_meet: rank 0 cannot accept: %s",
                        tri_error_text(error).text);
    while (offer->missing > 0 && tri_now_ns() < offer->terms->deadline_ns)
        (void)tri_service_wait(offer->terms->deadline_ns);
    if (offer->missing == 0)
        return finish(offer, id, NULL);
    say_late(&why, offer);
    (void)finish(offer, NULL, &why);
    return tri_fail(why.status, "%s", why.text);
}

/* ---------------------------------------------------------------------------------------- lifetime */

static bool begin(struct offer *offer, const struct tri_terms *terms)
{
    memset(offer, 0, sizeof *offer);
    offer->terms = terms;
    offer->missing = terms->job->n_ranks - 1;
    offer->of = calloc((size_t)terms->job->n_ranks, sizeof *offer->of);
    offer->family.owner = &owner;
    offer->family.size = terms->job->n_ranks;
    offer->family.context = offer;
    memcpy(offer->family.key, terms->key, sizeof terms->key);
    tri_accept_begin(&offer->accept, &offer->family);
    if (offer->of == NULL)
        return false;
    tri_peer_address_fill(&offer->of[0].address, 0, offer->family.size);
    offer->of[0].arrived = true;
    return true;
}

static void end(struct offer *offer)
{
    tri_accept_end(&offer->accept);
    for (int32_t rank = 1; rank < offer->family.size; rank++)
        tri_channel_destroy(offer->of[rank].channel);
    while (offer->extra != NULL) {
        struct tri_channel *next = offer->extra->next;
        tri_channel_destroy(offer->extra);
        offer->extra = next;
    }
    free(offer->of);
    explicit_bzero(offer->family.key, sizeof offer->family.key);
}

trib_status tri_offer(const trib_id *id, const struct tri_terms *terms)
{
    struct offer offer;
    if (!begin(&offer, terms))
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_job_meet: no memory for %d ranks",
                        terms->job->n_ranks);
    tri_service_lock();
    const trib_status status = meet(&offer, id);
    end(&offer);
    tri_service_unlock();
    return status;
}
