/* What the operating system says of this process. Every figure is -1 where it says nothing. */
#ifndef TRI_TESTS_PROCESS_H
#define TRI_TESTS_PROCESS_H

long process_threads(void);
long process_descriptors(void);
long process_descriptors_of(int pid); /* another process */
long process_mappings(void);
long process_resident_kb(void);
/* How often a thread of this process has gone to sleep. */
long process_sleeps(int thread);

#endif
