/* Preloaded into a program under valgrind. valgrind unmaps the vDSO, but does not hide its address from
   prctl(PR_GET_AUXV), where rustix asks for it. A page of zeros at that address is no vDSO, so rustix makes
   system calls instead. */
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>

__attribute__((constructor)) static void cover(void) {
    unsigned long vector[128];
    int len = prctl(0x41555856, vector, sizeof vector, 0, 0);
    for (int at = 0; at + 1 < len / (int)sizeof *vector && vector[at] != AT_NULL; at += 2)
        if (vector[at] == AT_SYSINFO_EHDR)
            mmap((void *)vector[at + 1], 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
