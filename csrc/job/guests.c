/* Who has come to a meeting, and in words who has not. */
#define _GNU_SOURCE
#include "csrc/job/guests.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/text.h"
#include "csrc/job/place.h"

enum { NAMES = 120 }; /* bytes, and then how many more there are */

bool tri_guests_begin(struct tri_guests *guests, const struct tri_terms *terms)
{
    memset(guests, 0, sizeof *guests);
    guests->terms = terms;
    guests->size = terms->job->n_ranks;
    guests->of = calloc((size_t)guests->size, sizeof *guests->of);
    if (guests->of == NULL)
        return false;
    tri_peer_address_fill(&guests->of[0].address, 0, guests->size);
    return true;
}

void tri_guests_end(struct tri_guests *guests)
{
    for (int32_t rank = 1; rank < guests->size; rank++)
        tri_channel_destroy(guests->of[rank].channel);
    free(guests->of);
}

bool tri_guests_complete(const struct tri_guests *guests)
{
    return guests->here == guests->size - 1;
}

/* ------------------------------------------------------------------------------------- who, in words */

typedef bool (*picks)(const struct tri_guest *guest);

static bool never_came(const struct tri_guest *guest)
{
    return guest->channel == NULL && !guest->left;
}

static bool has_left(const struct tri_guest *guest)
{
    return guest->channel == NULL && guest->left;
}

static int32_t count(const struct tri_guests *guests, picks picked)
{
    int32_t n = 0;
    for (int32_t rank = 1; rank < guests->size; rank++)
        n += picked(&guests->of[rank]);
    return n;
}

/* The last of those from `rank` on that are all picked. */
static int32_t end_of_row(const struct tri_guests *guests, picks picked, int32_t rank)
{
    while (rank + 1 < guests->size && picked(&guests->of[rank + 1]))
        rank++;
    return rank;
}

/* "ranks 1, 4 to 7 and 12 more". */
static void name_ranks(struct tri_text *out, const struct tri_guests *guests, picks picked)
{
    const size_t begin = out->used;
    const char *before = "";
    int32_t left = count(guests, picked);
    tri_text_add(out, "%s ", left == 1 ? "rank" : "ranks");
    for (int32_t rank = 1; left > 0; rank++) {
        if (!picked(&guests->of[rank]))
            continue;
        if (out->used - begin > NAMES) {
            tri_text_add(out, " and %d more", left);
            return;
        }
        const int32_t last = end_of_row(guests, picked, rank);
        tri_text_add(out, "%s%d", before, rank);
        if (last > rank)
            tri_text_add(out, "%s%d", last == rank + 1 ? ", " : " to ", last);
        before = ", ";
        left -= last - rank + 1;
        rank = last;
    }
}

static void name_lost(struct tri_peer_abort *out, const struct tri_guests *guests)
{
    for (int32_t rank = 1; rank < guests->size && out->n < TRI_LOST_MAX; rank++)
        if (guests->of[rank].channel == NULL)
            out->lost[out->n++] = rank;
}

/* Who did not come; or where all have come, who did not stay until the others were there. */
static void add_absent(struct tri_text *text, const struct tri_guests *guests, int32_t rank)
{
    const bool some_never = count(guests, never_came) > 0;
    name_ranks(text, guests, some_never ? never_came : has_left);
    tri_text_add(text, " of %d %s to rank 0 at %s, port %d,%s ", guests->size,
                 some_never ? "did not come" : "came", guests->terms->job->host, guests->port,
                 some_never ? "" : " and left before all were there,");
    if (rank == 0)
        tri_text_add(text, "within %u ms", guests->terms->timeout_ms);
    else
        tri_text_add(text, "before the time of rank %d was over", rank);
    if (some_never && count(guests, has_left) > 0) {
        tri_text_add(text, "; ");
        name_ranks(text, guests, has_left);
        tri_text_add(text, " came and left");
    }
}

/* What explains an absence, as far as rank 0 knows. */
static void add_causes(struct tri_text *text, const struct tri_guests *guests)
{
    int32_t refused = 1;
    while (refused < guests->size &&
           !(guests->of[refused].refused && guests->of[refused].channel == NULL))
        refused++;
    if (refused < guests->size)
        tri_text_add(text,
                     "; one that claimed to be rank %d was refused: it has another "
                     "TRIBUTARY_SECRET, job or number of ranks",
                     refused);
    if (guests->accept_error != 0)
        tri_text_add(text, "; rank 0 could not accept a connection: %s",
                     tri_error_text(guests->accept_error).text);
    if (tri_place_is_loopback(guests->terms->job->host))
        tri_text_add(text, "; from other hosts that address leads elsewhere");
}

void tri_guests_say_missing(struct tri_peer_abort *out, const struct tri_guests *guests,
                            int32_t rank)
{
    struct tri_text text = {out->text, 0, sizeof out->text, false, false};
    memset(out, 0, sizeof *out);
    out->status = TRIB_ERR_TIMEOUT;
    name_lost(out, guests);
    tri_text_add(&text, "trib_job_meet: ");
    add_absent(&text, guests, rank);
    tri_text_add(&text, "; rank 0 is process %d on %s", guests->of[0].address.pid,
                 guests->of[0].address.host);
    add_causes(&text, guests);
    tri_text_add(&text,
                 count(guests, never_came) > 0
                     ? "; do they run, and can they connect to that host and port?"
                     : "; a rank leaves when its time is over, or when it ends: start all at "
                       "about the same time, or give them more");
}
