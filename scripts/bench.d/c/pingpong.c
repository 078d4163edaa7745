/* Round trips of 200 bytes there and 20 back, one after the other. usage: pingpong SOCKET COUNT; prints each in ns */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char buf[200];
	if (argc != 3 || strlen(argv[1]) >= sizeof a.sun_path)
		return 2;
	strcpy(a.sun_path, argv[1]);
	memset(buf, 'x', sizeof buf);
	int s = socket(AF_UNIX, SOCK_STREAM, 0), count = atoi(argv[2]);
	long *took = malloc(sizeof(long) * (count + 1));
	if (connect(s, (struct sockaddr *)&a, sizeof a) != 0)
		return 1;
	for (int i = 0; i < count; i++) {
		long start = now();
		if (write(s, buf, 200) != 200 || read(s, buf, 20) != 20)
			return 1;
		took[i] = now() - start;
	}
	for (int i = 0; i < count; i++)
		printf("%ld\n", took[i]);
	return 0;
}
