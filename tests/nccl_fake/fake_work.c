/* The work of the fake's streams that is not NCCL's. */
#include "tests/nccl_fake/fake_work.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl_fake/fake.h"

struct fake_work {
    struct fake_work *next;
    const struct fake_work_kind *kind; /* NULL: it runs `run`, once */
    void (*run)(void *argument);
    _Alignas(max_align_t) char argument[];
};

static struct fake_line *lines;

static void add(struct fake_line *line, struct fake_work work, const void *argument, size_t bytes)
{
    struct fake_work *own = malloc(sizeof *own + bytes);
    if (own == NULL)
        fake_die("no memory for work of a stream");
    *own = work;
    memcpy(own->argument, argument, bytes);
    if (line->first == NULL)
        line->first = own;
    else
        line->last->next = own;
    line->last = own;
    line->queued++;
    if (!line->listed) {
        line->listed = true;
        line->next = lines;
        lines = line;
    }
    fake_progress();
}

void fake_line_add(struct fake_line *line, const struct fake_work_kind *kind, const void *argument,
                   size_t bytes)
{
    add(line, (struct fake_work){.kind = kind}, argument, bytes);
}

void fake_line_run(struct fake_line *line, void (*run)(void *argument), const void *argument,
                   size_t bytes)
{
    add(line, (struct fake_work){.run = run}, argument, bytes);
}

struct await {
    const struct fake_line *other;
    long until;
};

static bool has_come(void *argument)
{
    const struct await *await = argument;
    return await->other->ended >= await->until;
}

void fake_line_await(struct fake_line *line, const struct fake_line *other, long until)
{
    static const struct fake_work_kind awaits = {has_come, NULL};
    const struct await await = {other, until};
    if (line != other && other->ended < until)
        fake_line_add(line, &awaits, &await, sizeof await);
}

/* The first work of a line; false: it waits, or there is none. */
static bool step(struct fake_line *line)
{
    struct fake_work *work = line->first;
    if (work == NULL || (work->kind != NULL && !work->kind->step(work->argument)))
        return false;
    if (work->kind == NULL)
        work->run(work->argument);
    line->first = work->next;
    line->ended++;
    free(work);
    return true;
}

void fake_progress(void)
{
    bool ever = false;
    for (bool moved = true; moved;) {
        moved = false;
        for (struct fake_line *line = lines; line != NULL; line = line->next)
            while (step(line))
                moved = true;
        ever = ever || moved;
    }
    if (ever)
        (void)pthread_cond_broadcast(&fake_changed);
}

bool fake_in_use(const void *begin, size_t bytes)
{
    for (const struct fake_line *line = lines; line != NULL; line = line->next)
        for (const struct fake_work *work = line->first; work != NULL; work = work->next)
            if (work->kind != NULL && work->kind->uses != NULL &&
                work->kind->uses(work->argument, begin, bytes))
                return true;
    return false;
}
