/* A team of threads, which wait for rounds of work. */
#include "csrc/base/team.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "csrc/base/thread.h"

struct member {
    struct tri_team *team;
    int32_t part;
    pthread_t thread;
};

struct tri_team {
    /* Guards everything below but `members`, which only the owner changes, before and after its
     * threads run. Not held while a part runs. */
    pthread_mutex_t lock;
    pthread_cond_t begins, ended; /* a round; the last part of it */
    void (*function)(int32_t part, void *argument);
    void *argument;
    uint64_t rounds; /* begun */
    int32_t running; /* parts of the newest round */
    bool over;       /* no more rounds follow */
    int32_t size;    /* parts, the caller's included */
    struct member members[];
};

/* Wait for round `round`; false: the team is over. The caller holds the lock. */
static bool await_round(struct tri_team *team, uint64_t round)
{
    while (team->rounds < round && !team->over)
        (void)pthread_cond_wait(&team->begins, &team->lock);
    return team->rounds >= round;
}

static void *serve(void *argument)
{
    const struct member *member = argument;
    struct tri_team *team = member->team;
    pthread_mutex_lock(&team->lock);
    for (uint64_t round = 1; await_round(team, round); round++) {
        void (*const function)(int32_t, void *) = team->function;
        void *const data = team->argument;
        pthread_mutex_unlock(&team->lock);
        function(member->part, data);
        pthread_mutex_lock(&team->lock);
        if (--team->running == 0)
            (void)pthread_cond_signal(&team->ended);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static bool init(struct tri_team *team)
{
    if (pthread_mutex_init(&team->lock, NULL) != 0)
        return false;
    if (pthread_cond_init(&team->begins, NULL) == 0) {
        if (pthread_cond_init(&team->ended, NULL) == 0)
            return true;
        (void)pthread_cond_destroy(&team->begins);
    }
    (void)pthread_mutex_destroy(&team->lock);
    return false;
}

trib_status tri_team_create(struct tri_team **out, int32_t size)
{
    struct tri_team *team = calloc(1, sizeof *team + (size_t)size * sizeof *team->members);
    *out = NULL;
    if (team == NULL || !init(team)) {
        free(team);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for a team of %d threads", (int)size);
    }
    for (team->size = 1; team->size < size; team->size++) {
        struct member *member = &team->members[team->size];
        *member = (struct member){.team = team, .part = team->size};
        const int error = tri_thread_start(&member->thread, serve, member);
        if (error == 0)
            continue;
        const int32_t started = team->size;
        tri_team_destroy(team);
        return tri_fail(TRIB_ERR_SYSTEM, "no thread for part %d of %d: %s", (int)started, (int)size,
                        tri_error_text(error).text);
    }
    *out = team;
    return TRIB_OK;
}

void tri_team_run(struct tri_team *team, void (*function)(int32_t part, void *argument),
                  void *argument)
{
    pthread_mutex_lock(&team->lock);
    team->function = function;
    team->argument = argument;
    team->running = team->size - 1;
    team->rounds++;
    (void)pthread_cond_broadcast(&team->begins);
    pthread_mutex_unlock(&team->lock);
    function(0, argument);
    pthread_mutex_lock(&team->lock);
    while (team->running > 0)
        (void)pthread_cond_wait(&team->ended, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

void tri_team_destroy(struct tri_team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    team->over = true;
    (void)pthread_cond_broadcast(&team->begins);
    pthread_mutex_unlock(&team->lock);
    for (int32_t part = 1; part < team->size; part++)
        (void)pthread_join(team->members[part].thread, NULL);
    (void)pthread_cond_destroy(&team->begins);
    (void)pthread_cond_destroy(&team->ended);
    (void)pthread_mutex_destroy(&team->lock);
    free(team);
}
