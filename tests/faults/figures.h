/* What a process holds, to see that nothing grows. */
#ifndef TRI_TESTS_FAULTS_FIGURES_H
#define TRI_TESTS_FAULTS_FIGURES_H

struct figures {
    long bytes, threads, descriptors, mappings, resident_kb;
};

/* The allocator says how many bytes are in use, and what is freed is not in use: begins the program
 * again without the allocator's caches of threads, unless that was done. */
void figures_exact(char **arguments);
struct figures figures_measure(void);
/* `rounds` rounds later: one byte more for each round is allowed, the memory of threads that run
 * side by side for the first time, and `more`. Waits, at most 10 s: threads that have ended are
 * counted for a moment. Prints both. */
void figures_compare(struct figures before, int rounds, struct figures more);

#endif
