/* What the system calls this CPU, so that figures of different machines are not compared. Family and
 * model go with it where x86 has them: virtual machines often tell the brand alone. */
#ifndef PTL_CPU_NAME_H
#define PTL_CPU_NAME_H

/* "unnamed" where Linux gives no name, as on most ARM machines. */
const char *cpu_name(char text[128]);

#endif
