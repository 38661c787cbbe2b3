/* Rank 0's side of a meeting: it listens, and hands every rank the id once all have come.
 *
 * A rank has come when it has proved itself and said who it is; if its connection ends before all
 * have come, it has not. So all ranks get the id or, when the time is over, all that are there get
 * the names of those that are not. A rank whose own time is over first gets them when it asks. The
 * service's lock guards everything here. */
#define _GNU_SOURCE
#include "csrc/job/offer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/job/guests.h"
#include "csrc/job/listen.h"
#include "csrc/peers/accept.h"

enum {
    ARRIVAL_MS = 5000, /* for one that has proved itself to say who it is */
    LINGER_MS = 2000   /* for what was said last to be read */
};

struct offer {
    struct tri_channel_family family;
    struct tri_accept accept;
    struct tri_guests guests;
    struct tri_channel
        *extra; /* open, of nobody who has come: they have not said who they are, or were
                                  dismissed. Each has a deadline */
    bool over;  /* the last word has been said */
};

/* ------------------------------------------------------------------------------------- last words */

/* Queues it; the channel lives until the other end closes it, or LINGER_MS. */
static void dismiss(struct tri_channel *channel, const struct tri_peer_abort *why)
{
    uint8_t bytes[TRI_PEER_ABORT_MAX];
    const size_t n = tri_peer_abort_pack(bytes, why);
    (void)tri_channel_send(channel, TRI_PEER_ABORT, bytes, n, -1);
    tri_channel_bye(channel);
    tri_service_deadline(&channel->item, tri_deadline_ns(LINGER_MS));
}

static void say(struct tri_peer_abort *out, trib_status status, const char *text)
{
    memset(out, 0, sizeof *out);
    out->status = status;
    tri_text_printable(out->text, (const uint8_t *)text, strnlen(text, sizeof out->text - 1));
}

static void say_missing(struct tri_peer_abort *out, struct offer *offer, int32_t rank)
{
    offer->guests.accept_error = offer->accept.error;
    tri_guests_say_missing(out, &offer->guests, rank);
}

/* `address` is that of a process with the number of another one, at `first`. */
static void dismiss_double(struct offer *offer, struct tri_channel *channel,
                           const struct tri_peer_address *first,
                           const struct tri_peer_address *address)
{
    struct tri_peer_abort why;
    (void)tri_fail(TRIB_ERR_INVALID_USAGE,
                   "trib_job_meet: two processes have come as rank %d of %d: %s, and %s, which is "
                   "refused; every process needs a rank of its own",
                   channel->wire.peer, offer->family.size, tri_peer_text(first).text,
                   tri_peer_text(address).text);
    say(&why, TRIB_ERR_INVALID_USAGE, tri_detail());
    if (tri_accept_logs(&offer->accept))
        tri_log(TRIB_LOG_WARN, "%s", why.text);
    dismiss(channel, &why);
}

/* A process has come a second time: its first connection has ended without a word that arrived, or
 * two of its threads meet, of which this one then hears. */
static void dismiss_former(const struct offer *offer, struct tri_channel *channel,
                           const struct tri_peer_address *address)
{
    struct tri_peer_abort why;
    (void)tri_fail(TRIB_ERR_INVALID_USAGE,
                   "trib_job_meet: %s has come twice, and the later one counts; of %d ranks each "
                   "meets once at a time",
                   tri_peer_text(address).text, offer->family.size);
    say(&why, TRIB_ERR_INVALID_USAGE, tri_detail());
    dismiss(channel, &why);
}

/* ------------------------------------------------------------------ what channels say of themselves */

static struct tri_guest *guest_of(struct offer *offer, const struct tri_channel *channel)
{
    return &offer->guests.of[channel->wire.peer];
}

static void add_extra(struct offer *offer, struct tri_channel *channel)
{
    channel->next = offer->extra;
    offer->extra = channel;
}

static void remove_extra(struct offer *offer, const struct tri_channel *channel)
{
    struct tri_channel **link = &offer->extra;
    while (*link != channel)
        link = &(*link)->next;
    *link = channel->next;
}

static bool admits(struct tri_channel *channel)
{
    const struct offer *offer = channel->family->context;
    return channel->wire.peer < offer->family.size && !offer->over;
}

static void opened(struct tri_channel *channel)
{
    struct offer *offer = channel->family->context;
    (void)tri_accept_take(&offer->accept, channel);
    tri_service_deadline(&channel->item, tri_deadline_ns(ARRIVAL_MS));
    add_extra(offer, channel);
}

/* The channel is not the guest's any more, and the caller's. */
static void let_go(struct offer *offer, struct tri_guest *guest)
{
    guest->left = true;
    guest->channel = NULL;
    offer->guests.here--;
}

static void seat(struct offer *offer, struct tri_channel *channel,
                 const struct tri_peer_address *address)
{
    struct tri_guest *guest = guest_of(offer, channel);
    struct tri_channel *former = guest->channel;
    if (former != NULL) {
        let_go(offer, guest);
        add_extra(offer, former);
        dismiss_former(offer, former, &guest->address);
    }
    remove_extra(offer, channel);
    tri_service_deadline(&channel->item, 0);
    guest->channel = channel;
    guest->address = *address;
    offer->guests.here++;
    tri_service_wake();
}

static void arrive(struct offer *offer, struct tri_channel *channel,
                   const struct tri_peer_address *address)
{
    const int32_t rank = channel->wire.peer;
    const struct tri_guest *guest = guest_of(offer, channel);
    struct tri_peer_abort why;
    if (guest->channel == channel)
        return;
    if (tri_peer_address_check(address, rank, offer->family.size) != TRIB_OK) {
        say(&why, TRIB_ERR_MISMATCH, tri_detail());
        dismiss(channel, &why);
    } else if (rank != 0 &&
               (guest->channel == NULL || tri_peer_same_process(&guest->address, address))) {
        seat(offer, channel, address);
    } else {
        dismiss_double(offer, channel, &guest->address, address);
    }
}

/* Of one that has come: it hears who is missing, and is from now on. */
static void take_leave(struct offer *offer, struct tri_channel *channel)
{
    struct tri_guest *guest = guest_of(offer, channel);
    struct tri_peer_abort why;
    if (guest->channel != channel)
        return;
    say_missing(&why, offer, channel->wire.peer);
    let_go(offer, guest);
    add_extra(offer, channel);
    dismiss(channel, &why);
}

static void message(struct tri_channel *channel, const struct tri_peer_message *message, int fd)
{
    struct offer *offer = channel->family->context;
    struct tri_peer_address address;
    if (fd >= 0)
        (void)close(fd);
    if (message->type == TRI_PEER_TIME_OVER)
        take_leave(offer, channel);
    if (message->type != TRI_PEER_ARRIVAL)
        return;
    memcpy(&address, message->payload, sizeof address);
    arrive(offer, channel, &address);
}

/* It never opened. */
static void stranger_ended(struct offer *offer, const struct tri_channel *channel,
                           enum tri_channel_end why)
{
    const int32_t rank = channel->wire.peer;
    if (why != TRI_CHANNEL_REFUSED)
        return;
    if (rank >= 0 && rank < offer->family.size)
        offer->guests.of[rank].refused = true;
    if (tri_accept_logs(&offer->accept))
        tri_log(
            TRIB_LOG_WARN,
            "trib_job_meet: refused a process that claims to be rank %d: it has another secret, "
            "job or number of ranks",
            rank);
}

static void ended(struct tri_channel *channel, enum tri_channel_end why, int error)
{
    struct offer *offer = channel->family->context;
    (void)error;
    if (tri_accept_take(&offer->accept, channel)) {
        stranger_ended(offer, channel, why);
    } else if (guest_of(offer, channel)->channel == channel) {
        let_go(offer, guest_of(offer, channel));
        tri_service_wake();
    } else {
        remove_extra(offer, channel);
    }
    tri_channel_destroy(channel);
}

static const struct tri_channel_owner owner = {
    .admits = admits, .opened = opened, .message = message, .ended = ended};

/* ------------------------------------------------------------------------------------------ the end */

/* Say `why`, or hand out `id` if that is NULL, and wait until it has been read. */
static trib_status finish(struct offer *offer, const trib_id *id, const struct tri_peer_abort *why)
{
    const uint64_t until_ns = tri_deadline_ns(LINGER_MS);
    trib_status status = TRIB_OK;
    offer->over = true;
    tri_accept_end(&offer->accept);
    for (int32_t rank = 1; rank < offer->family.size; rank++) {
        struct tri_channel *channel = offer->guests.of[rank].channel;
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
    while (offer->guests.here > 0 && tri_now_ns() < until_ns)
        (void)tri_service_wait(until_ns);
    return status;
}

static trib_status meet(struct offer *offer, const trib_id *id)
{
    const uint64_t deadline_ns = offer->guests.terms->deadline_ns;
    struct tri_peer_abort why;
    int fd;
    TRI_TRY(tri_listen(&fd, &offer->guests.port, offer->guests.terms));
    tri_accept_set(&offer->accept, false, fd);
    const int error = tri_accept_start(&offer->accept, false);
    if (error != 0)
        return tri_fail(TRIB_ERR_SYSTEM, "trib_job_meet: rank 0 cannot accept: %s",
                        tri_error_text(error).text);
    while (!tri_guests_complete(&offer->guests) && tri_now_ns() < deadline_ns)
        (void)tri_service_wait(deadline_ns);
    if (tri_guests_complete(&offer->guests))
        return finish(offer, id, NULL);
    say_missing(&why, offer, 0);
    (void)finish(offer, NULL, &why);
    return tri_fail(why.status, "%s", why.text);
}

/* ---------------------------------------------------------------------------------------- lifetime */

static bool begin(struct offer *offer, const struct tri_terms *terms)
{
    memset(offer, 0, sizeof *offer);
    if (!tri_guests_begin(&offer->guests, terms))
        return false;
    offer->family.owner = &owner;
    offer->family.size = terms->job->n_ranks;
    offer->family.context = offer;
    memcpy(offer->family.key, terms->key, sizeof terms->key);
    tri_accept_begin(&offer->accept, &offer->family);
    return true;
}

static void end(struct offer *offer)
{
    tri_accept_end(&offer->accept);
    tri_guests_end(&offer->guests);
    while (offer->extra != NULL) {
        struct tri_channel *next = offer->extra->next;
        tri_channel_destroy(offer->extra);
        offer->extra = next;
    }
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
