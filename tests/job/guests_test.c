/* Who has not come to a meeting, in words: also of thousands, the words fit into a detail. */
#include <stdio.h>
#include <string.h>

#include "csrc/job/guests.h"
#include "tests/check.h"

static const char end_of_all[] = "; do they run, and can they connect to that host and port?";

static trib_job job;
static const struct tri_terms terms = {.job = &job, .timeout_ms = 300000};
static struct tri_channel channel; /* of whoever is there; nothing is done with it */

static void begin(struct tri_guests *guests, int32_t n_ranks)
{
    job = (trib_job)TRIB_JOB_INIT;
    job.n_ranks = n_ranks;
    memcpy(job.host, "a7", sizeof "a7");
    CHECK(tri_guests_begin(guests, &terms));
    guests->port = 61000;
}

static void end(struct tri_guests *guests)
{
    for (int32_t rank = 0; rank < guests->size; rank++)
        guests->of[rank].channel = NULL;
    tri_guests_end(guests);
}

static void check_says(const struct tri_guests *guests, int32_t rank, const char *words)
{
    struct tri_peer_abort out;
    const size_t tail = sizeof end_of_all - 1;
    tri_guests_say_missing(&out, guests, rank);
    CHECK(out.status == TRIB_ERR_TIMEOUT);
    CHECK_MSG(strncmp(out.text, words, strlen(words)) == 0, "\"%s\"", out.text);
    CHECK_MSG(strlen(out.text) > tail &&
                  strcmp(out.text + strlen(out.text) - tail, end_of_all) == 0,
              "\"%s\"", out.text);
}

static void few(void)
{
    struct tri_guests guests;
    struct tri_peer_abort out;
    check_begin("a few");
    begin(&guests, 5);
    guests.of[2].channel = &channel;
    guests.of[4].left = true;
    check_says(&guests, 0,
               "trib_job_meet: ranks 1, 3 of 5 did not come to rank 0 at a7, port 61000, within "
               "300000 ms; rank 4 came and left; rank 0 is process ");
    check_says(&guests, 2,
               "trib_job_meet: ranks 1, 3 of 5 did not come to rank 0 at a7, port 61000, before "
               "the time of rank 2 was over; rank 4 came and left; rank 0 is process ");
    guests.of[1].left = guests.of[3].left = true;
    tri_guests_say_missing(&out, &guests, 0);
    CHECK_MSG(strstr(out.text, "ranks 1, 3, 4 of 5 came to rank 0 at a7, port 61000, and left "
                               "before all were there, within 300000 ms") != NULL,
              "\"%s\"", out.text);
    CHECK(out.n == 3 && out.lost[0] == 1 && out.lost[1] == 3 && out.lost[2] == 4);
    end(&guests);
    check_end();
}

/* Every second one of as many as there can be. */
static void thousands(void)
{
    struct tri_guests guests;
    struct tri_peer_abort out;
    check_begin("thousands");
    begin(&guests, TRIB_JOB_RANKS_MAX);
    for (int32_t rank = 1; rank < guests.size; rank += 2)
        guests.of[rank].channel = &channel;
    check_says(&guests, 0, "trib_job_meet: ranks 2, 4, 6, 8, 10, ");
    tri_guests_say_missing(&out, &guests, 0);
    int32_t named = 0, more = 0;
    const char *and = strstr(out.text, " and ");
    for (const char *c = out.text + sizeof "trib_job_meet: ranks"; and != NULL && c < and; c++)
        named += *c >= '0' && *c <= '9' && (c[1] < '0' || c[1] > '9');
    CHECK(and != NULL && sscanf(and, " and %d more of 65536 did not come", &more) == 1);
    CHECK_MSG(named + more == TRIB_JOB_RANKS_MAX / 2 - 1, "%d and %d", named, more);
    end(&guests);
    check_end();
}

static void causes(void)
{
    struct tri_guests guests;
    struct tri_peer_abort out;
    check_begin("causes");
    begin(&guests, 4);
    memcpy(job.host, "localhost", sizeof "localhost");
    guests.of[1].refused = guests.of[3].refused = true;
    guests.of[1].channel = &channel;
    guests.accept_error = 24;
    tri_guests_say_missing(&out, &guests, 0);
    CHECK(strstr(out.text, "; one that claimed to be rank 3 was refused") != NULL);
    CHECK(strstr(out.text, "; rank 0 could not accept a connection: Too many open files") != NULL);
    CHECK(strstr(out.text, "; from other hosts that address leads elsewhere") != NULL);
    end(&guests);
    check_end();
}

int main(void)
{
    few();
    thousands();
    causes();
    return check_finish("guests_test");
}
