/* The side of a meeting that looks for rank 0 and asks it for the id.
 *
 * Nothing says when rank 0 begins to listen, nor at which of its ports: so a rank tries all of them,
 * at every address of the host, until one opens a channel. Then it says who it is and waits for what
 * rank 0 has to say: the id, or why there is none. */
#define _GNU_SOURCE
#include "csrc/job/ask.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/job/place.h"
#include "csrc/peers/channel.h"
#include "csrc/peers/socket.h"

enum {
    ATTEMPT_MS = 2000,  /* for one attempt to connect, with its handshake */
    PAUSE_MS = 20,      /* after the first round of attempts; later ones wait longer, up to */
    PAUSE_MAX_MS = 500, /* this */
    RESOLVE_MS = 2000,  /* until the system is asked again for the host's addresses */
    PATIENCE_MS = 1000, /* beyond the deadline, for rank 0 to say by itself who has not come */
    LINGER_MS = 1000,   /* the same, after it has been asked */
    OTHER_MS = 4000,    /* for another rank 0 to say something */
    REFUSED_MS = 10000  /* for the own rank 0, where another job's refuses */
};

/* The nearest that an attempt has come to rank 0. */
enum nearest { NOBODY, STRANGER, REFUSED, REACHED };

struct ask {
    const struct tri_terms *terms;
    struct tri_channel_family family;
    struct tri_channel *channel;
    bool open;                  /* the channel is, or was */
    enum tri_channel_end why;   /* it ended */
    int error;                  /* the same */
    bool has_id, has_word;      /* what rank 0 has said */
    trib_id id;                 /* the one, */
    struct tri_peer_abort word; /* the other */
};

/* -------------------------------------------------------------------- what the channel says of itself */

static bool admits(struct tri_channel *channel)
{
    (void)channel;
    return false;
}

static void opened(struct tri_channel *channel)
{
    struct ask *ask = channel->family->context;
    struct tri_peer_address own;
    tri_peer_address_fill(&own, ask->family.rank, ask->family.size);
    ask->open = true;
    (void)tri_channel_send(channel, TRI_PEER_ARRIVAL, &own, sizeof own, -1);
    tri_service_wake();
}

static void message(struct tri_channel *channel, const struct tri_peer_message *message, int fd)
{
    struct ask *ask = channel->family->context;
    if (fd >= 0)
        (void)close(fd);
    if (message->type == TRI_PEER_ID) {
        memcpy(&ask->id, message->payload, sizeof ask->id);
        ask->has_id = true;
    } else if (message->type == TRI_PEER_ABORT) {
        ask->has_word = tri_peer_abort_unpack(&ask->word, message->payload, message->length);
    }
    tri_service_wake();
}

static void note_end(struct ask *ask, const struct tri_channel *channel, enum tri_channel_end why,
                     int error)
{
    /* Late before there was a connection: nobody has answered. */
    ask->why = channel->state == TRI_CHANNEL_CONNECTS ? TRI_CHANNEL_BROKEN : why;
    ask->error = error;
}

static void ended(struct tri_channel *channel, enum tri_channel_end why, int error)
{
    struct ask *ask = channel->family->context;
    ask->channel = NULL;
    note_end(ask, channel, why, error);
    tri_channel_destroy(channel);
    tri_service_wake();
}

static const struct tri_channel_owner owner = {
    .admits = admits, .opened = opened, .message = message, .ended = ended};

/* -------------------------------------------------------------------------------------- attempts */

static void begin(struct ask *ask, const struct tri_terms *terms)
{
    memset(ask, 0, sizeof *ask);
    ask->terms = terms;
    ask->family.owner = &owner;
    ask->family.rank = terms->job->rank;
    ask->family.size = terms->job->n_ranks;
    ask->family.context = ask;
    memcpy(ask->family.key, terms->key, sizeof terms->key);
}

static bool answered(const struct ask *ask)
{
    return ask->has_id || ask->has_word;
}

/* When the handshake of an attempt that begins now must have ended. */
static uint64_t handshake_ends(const struct ask *ask)
{
    const uint64_t end = tri_deadline_ns(ATTEMPT_MS);
    return end < ask->terms->deadline_ns ? end : ask->terms->deadline_ns;
}

static void hang_up(struct ask *ask)
{
    tri_channel_destroy(ask->channel);
    ask->channel = NULL;
}

/* Connect; returns with a channel that is open, or without one. Whoever is there has `ATTEMPT_MS` for
 * the whole handshake, so that one who begins it and falls silent holds no rank. The lock is held. */
static void reach(struct ask *ask, const struct tri_peer_address *to, int which)
{
    const uint64_t until_ns = handshake_ends(ask);
    const int fd = tri_socket_connect_tcp(to, which);
    ask->open = false;
    ask->why = TRI_CHANNEL_BROKEN;
    ask->error = fd < 0 ? -fd : ENOMEM;
    if (fd < 0 ||
        tri_channel_create(&ask->channel, &ask->family, fd, false, 0, until_ns) != TRIB_OK)
        return;
    while (ask->channel != NULL && !ask->open && tri_now_ns() < until_ns)
        (void)tri_service_wait(until_ns);
    if (ask->channel == NULL || ask->open)
        return;
    note_end(ask, ask->channel, TRI_CHANNEL_LATE, ETIMEDOUT);
    hang_up(ask);
}

/* Until rank 0 has answered, the channel has ended, or time is over. */
static void hear(struct ask *ask, uint64_t until_ns)
{
    while (ask->channel != NULL && !answered(ask) && tri_now_ns() < until_ns)
        (void)tri_service_wait(until_ns);
}

/* The own time may be over long before that of a rank 0 that came later: it still knows who is
 * missing. */
static void hear_to_the_end(struct ask *ask)
{
    const uint64_t deadline_ns = ask->terms->deadline_ns;
    hear(ask, deadline_ns + PATIENCE_MS * 1000000ull);
    if (ask->channel == NULL || answered(ask))
        return;
    (void)tri_channel_send(ask->channel, TRI_PEER_TIME_OVER, NULL, 0, -1);
    hear(ask, deadline_ns + (PATIENCE_MS + LINGER_MS) * 1000000ull);
}

static void attempt(struct ask *ask, const struct tri_peer_address *to, int which)
{
    tri_service_lock();
    reach(ask, to, which);
    hear_to_the_end(ask);
    hang_up(ask);
    tri_service_unlock();
}

static enum nearest nearest_of(const struct ask *ask)
{
    if (ask->open)
        return REACHED;
    if (ask->why == TRI_CHANNEL_REFUSED)
        return REFUSED;
    return ask->why == TRI_CHANNEL_LATE || ask->error == 0 || ask->error == EBADMSG ? STRANGER
                                                                                    : NOBODY;
}

/* What the rounds so far have found. */
struct search {
    struct tri_peer_address to;
    uint64_t resolve_ns;    /* when to ask for the addresses again */
    const char *unresolved; /* why the host has no address, or NULL */
    enum nearest nearest;
    int error;           /* of the last attempt that found nobody */
    uint64_t refused_ns; /* when to believe a refusal; 0: the last round met none */
    int32_t refused_port;
};

/* Thousands of ranks wait for a rank 0 that comes later: they do not ask at every round. */
static void resolve(struct search *search, const char *host)
{
    struct tri_peer_address found;
    if (tri_now_ns() < search->resolve_ns)
        return;
    memset(&found, 0, sizeof found);
    search->unresolved = tri_place_resolve(&found, host);
    if (search->unresolved == NULL)
        search->to = found;
    search->resolve_ns = tri_deadline_ns(RESOLVE_MS);
}

static void note(struct search *search, const struct ask *ask)
{
    const enum nearest found = nearest_of(ask);
    if (found > search->nearest)
        search->nearest = found;
    if (found == NOBODY)
        search->error = ask->error;
    if (found == REFUSED)
        search->refused_port = search->to.port;
    if (found == REFUSED && search->refused_ns == 0)
        search->refused_ns = tri_deadline_ns(REFUSED_MS);
}

/* Every port at every address, once. A refusal that does not come again is forgotten: whoever gave it
 * has gone, and the own rank 0 may still come. */
static void try_all(struct ask *ask, struct search *search)
{
    const struct tri_ports ports = tri_place_ports(ask->terms->job);
    bool refusal = false;
    resolve(search, ask->terms->job->host);
    const int addresses = search->to.tcp_count;
    for (int i = 0; i < (ports.last - ports.first + 1) * addresses; i++) {
        if (tri_now_ns() >= ask->terms->deadline_ns)
            return;
        search->to.port = (uint16_t)(ports.first + i / addresses);
        attempt(ask, &search->to, i % addresses);
        if (answered(ask))
            return;
        note(search, ask);
        refusal = refusal || nearest_of(ask) == REFUSED;
    }
    if (!refusal)
        search->refused_ns = 0;
}

/* --------------------------------------------------------------------------------------- failures */

static trib_status refused(const struct tri_terms *terms, const struct search *search)
{
    const trib_job *job = terms->job;
    return tri_fail(TRIB_ERR_MISMATCH,
                    "trib_job_meet: at %s, port %d, a rank 0 refused rank %d of %d: it has another "
                    "TRIBUTARY_SECRET, another number of ranks, or is of another job; give all "
                    "ranks the same",
                    job->host, search->refused_port, job->rank, job->n_ranks);
}

/* Where nobody was reached, the reason of the system; or "". */
static const char *system_says(const struct search *search, const struct tri_error_text *error)
{
    if (search->nearest != NOBODY)
        return "";
    if (search->to.tcp_count == 0)
        return search->unresolved;
    return search->error == 0 ? "" : error->text;
}

static trib_status late(const struct tri_terms *terms, const struct search *search)
{
    static const char *const found[] = {
        [NOBODY] = "nobody listens there",
        [STRANGER] = "something else answers there",
        [REFUSED] = "a rank 0 refused it, of another job or with another TRIBUTARY_SECRET",
        [REACHED] = "it reached rank 0, which waits for other ranks, or has ended"};
    const trib_job *job = terms->job;
    const struct tri_error_text text = tri_error_text(search->error);
    const char *error = system_says(search, &text);
    return tri_fail(
        TRIB_ERR_TIMEOUT,
        "trib_job_meet: rank %d of %d got no id from rank 0 at %s%s, %s, within "
        "%u ms: %s%s%s. Does rank 0 run, on that host%s, and may hosts connect to it there? "
        "TRIBUTARY_ADDRESS sets another place",
        job->rank, job->n_ranks, job->host, tri_place_addresses(&search->to, job->host).text,
        tri_ports_text(tri_place_ports(job)).text, terms->timeout_ms,
        search->to.tcp_count == 0 ? "the address of that host is not known"
                                  : found[search->nearest],
        error[0] == '\0' ? "" : ": ", error,
        tri_place_is_loopback(job->host) ? ", which to each host is itself" : "");
}

static trib_status answer(trib_id *out, const struct ask *ask)
{
    *out = ask->id;
    if (ask->has_word)
        return tri_fail(ask->word.status, "%s", ask->word.text);
    return TRIB_OK;
}

static trib_status search_until_late(trib_id *out, struct ask *ask, const struct tri_terms *terms)
{
    struct search search = {.nearest = NOBODY};
    for (uint64_t pause_ms = PAUSE_MS;; pause_ms = pause_ms * 3 / 2) {
        try_all(ask, &search);
        const uint64_t now = tri_now_ns();
        if (answered(ask))
            return answer(out, ask);
        if (search.refused_ns != 0 && now >= search.refused_ns)
            return refused(terms, &search);
        if (now >= terms->deadline_ns)
            return search.refused_ns != 0 ? refused(terms, &search) : late(terms, &search);
        if (pause_ms > PAUSE_MAX_MS)
            pause_ms = PAUSE_MAX_MS;
        const uint64_t left_ns = terms->deadline_ns - now;
        tri_nap_ns(left_ns < pause_ms * 1000000u ? left_ns : pause_ms * 1000000u);
    }
}

trib_status tri_ask(trib_id *out, const struct tri_terms *terms)
{
    struct ask ask;
    begin(&ask, terms);
    const trib_status status = search_until_late(out, &ask, terms);
    explicit_bzero(&ask, sizeof ask);
    return status;
}

bool tri_ask_other(const struct tri_terms *terms, uint16_t port)
{
    struct ask ask;
    const struct tri_peer_address here = {
        .port = port, .tcp_count = 1, .tcp = {{.family = 4, .bytes = {127, 0, 0, 1}}}};
    begin(&ask, terms);
    reach(&ask, &here, 0);
    hear(&ask, tri_deadline_ns(OTHER_MS));
    hang_up(&ask);
    if (ask.has_word)
        (void)tri_fail(ask.word.status, "%s", ask.word.text);
    explicit_bzero(ask.family.key, sizeof ask.family.key);
    return ask.has_word;
}
