/* The scenarios of aborts on the host backend. */
#include "tests/scenarios/scenario.h"

enum { RANKS = 3 };

static const char why_graphs[] = "host streams are not captured";

static const struct scenario without_cuda[] = {
    {21, "abort during stream capture", NULL, NULL, 0, 0, why_graphs, 0},
    {22, "abort with live graphs", NULL, NULL, 0, 0, why_graphs, 0},
    {23, "stuck replay of a graph", NULL, NULL, 0, 0, why_graphs, 0},
    {24, "graph destroyed after its communicator", NULL, NULL, 0, 0, why_graphs, 0},
    {30, "sticky error of a device", NULL, NULL, 0, 0, "a host device has none", 0},
    {32, "current device of the caller", NULL, NULL, 0, 0, "host has none", 0},
    {0},
};

int main(int n, char **arguments)
{
    (void)n;
    return scenarios_main("host", RANKS, without_cuda, arguments);
}
