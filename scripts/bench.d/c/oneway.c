/* One writer, one write of 200 bytes for each event, and a reader that throws them away. usage: oneway COUNT; prints ns */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	static char buf[1 << 16];
	struct timespec a, b;
	int s[2], count = argc == 2 ? atoi(argv[1]) : 0;
	if (count <= 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, s) != 0)
		return 2;
	if (fork() == 0) {
		close(s[0]);
		while (read(s[1], buf, sizeof buf) > 0)
			;
		_exit(0);
	}
	close(s[1]);
	memset(buf, 'x', 200);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < count; i++)
		if (write(s[0], buf, 200) != 200)
			return 1;
	close(s[0]);
	wait(0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%ld\n", (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec);
	return 0;
}
