/*
 * The least that a start of a container can cost: clone with new namespaces, an overlay root, /proc, /dev, one bind
 * mount, pivot_root, exec. No cgroup, no seccomp filter, no log, no state, no supervision. Compiled and run by
 * podkeep-bench to say how far podkeep is from it.
 *
 *   floor ROUNDS AT_ONCE LOWER WORK OUT     LOWER: root folder with /stamp, WORK: scratch folder, OUT: bound to /out
 *
 * Prints a line for each start: "start BOOTTIME_NS NAME", and "stop NANOSECONDS" for SIGTERM to reaped, and at the end
 * "cpu NANOSECONDS" for all rounds together. The first instruction's time is what /stamp wrote to OUT/NAME.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *lower, *work, *out;
static char name[64];
static int told[2];

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void must(int bad, const char *what)
{
	if (bad) {
		fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
		_exit(111);
	}
}

static void container(void)
{
	char root[512], options[2048], target[600];
	sigset_t none;

	snprintf(root, sizeof root, "%s/%s/root", work, name);
	snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s/%s/upper,workdir=%s/%s/work", lower, work, name, work, name);
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	must(mount("overlay", root, "overlay", 0, options), "overlay");
	snprintf(target, sizeof target, "%s/proc", root);
	must(mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
	snprintf(target, sizeof target, "%s/dev", root);
	must(mount("tmpfs", target, "tmpfs", MS_NOSUID, "mode=755"), "dev");
	snprintf(target, sizeof target, "%s/dev/null", root);
	must(mknod(target, S_IFCHR | 0666, makedev(1, 3)), "null");
	snprintf(target, sizeof target, "%s/out", root);
	must(mount(out, target, NULL, MS_BIND, NULL), "out");
	must(chdir(root), "chdir");
	must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
	must(umount2(".", MNT_DETACH), "umount");
	must(chdir("/"), "chdir");
	must(sethostname(name, strlen(name)), "hostname");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(target, sizeof target, "/out/%s", name);
	execl("/stamp", "/stamp", target, (char *)NULL);
	must(1, "exec");
}

static pid_t start(int round, int nr)
{
	char path[512], byte;
	pid_t pid;

	snprintf(name, sizeof name, "floor-%d-%d", round, nr);
	printf("start %lld %s\n", now(), name);
	snprintf(path, sizeof path, "%s/%s", work, name);
	must(mkdir(path, 0700), "mkdir");
	for (int i = 0; i < 3; i++) {
		static const char *const parts[] = { "root", "upper", "work" };
		snprintf(path, sizeof path, "%s/%s/%s", work, name, parts[i]);
		must(mkdir(path, 0755), "mkdir");
	}
	must(pipe2(told, O_CLOEXEC), "pipe");
	pid = syscall(SYS_clone, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD, NULL, NULL, NULL, NULL);
	must(pid < 0, "clone");
	if (pid == 0)
		container();
	close(told[1]);
	/* closed by exec */
	must(read(told[0], &byte, 1) != 0, "exec seen");
	close(told[0]);
	return pid;
}

int main(int argc, char **argv)
{
	struct rusage self, children;
	long long cpu;
	int rounds, at_once, status;
	pid_t *pids;

	must(argc != 6, "arguments");
	rounds = atoi(argv[1]);
	at_once = atoi(argv[2]);
	lower = argv[3];
	work = argv[4];
	out = argv[5];
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	pids = calloc(at_once, sizeof *pids);
	must(!pids, "memory");
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < at_once; i++)
			pids[i] = start(round, i);
		for (int i = 0; i < at_once; i++) {
			char path[512];
			struct stat st;
			long long began;

			/* the program has written its time, so it is ready to be stopped */
			snprintf(path, sizeof path, "%s/floor-%d-%d", out, round, i);
			while (stat(path, &st) || st.st_size == 0)
				usleep(200);
			began = now();
			kill(pids[i], SIGTERM);
			must(waitpid(pids[i], &status, 0) != pids[i], "waitpid");
			printf("stop %lld\n", now() - began);
		}
	}
	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	cpu = self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec + children.ru_stime.tv_sec;
	cpu = cpu * 1000000 + self.ru_utime.tv_usec + self.ru_stime.tv_usec + children.ru_utime.tv_usec + children.ru_stime.tv_usec;
	printf("cpu %lld\n", cpu * 1000);
	return 0;
}
