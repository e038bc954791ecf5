"""The native half of the fork-join pool, as LLVM IR: how a kernel's chunks are handed out, and how threads wait.

The chunks of a job are in parts, one for each thread, up to ``PARTS``. A thread takes the chunks of its own part in order,
then what is left of others. So it computes the same part of one kernel's grid after another's, and mostly reads what it has
written itself: where cores have caches of their own, that is faster to read than what another core has written, several
times so between cores that share no cache at all.

A part is one 64-bit word: the number of the current job (upper half) and how many of the part's chunks nobody has claimed yet
(lower half). A thread claims a chunk by a compare-and-swap from ``remaining`` to ``remaining - 1``. That it succeeds proves the
job to be the one whose description the thread has just read, since a job is described anew only when all chunks of the one
before are done. So a thread that wakes up late finds either work or nothing; nobody ever waits for a thread that has claimed
nothing, and a thread without a core delays a job by at most the one chunk it holds.
"""

from __future__ import annotations

import sys

from firebrick.compiler.targets.llvm.target import Target

PARTS = 8
"""Most parts of a job: a thread that finds nothing to do looks at each, and whoever begins a job writes each."""
# Bytes from the start of the pool's record. Words that different threads write are 128 bytes apart: processors fetch cache
# lines in pairs.
BELL, SLEEPERS, DONE, WAITING, OWNER = 0, 4, 128, 256, 384
KERNEL, BUFS, GRID, CHUNK, CHUNKS, FAULTS, SCRATCH, STRIDE, JOB = (512 + 8 * i for i in range(9))
STOP, THREADS, SPIN_BUSY, SPIN_IDLE, ACTIVE, STALL, ALONE_UNTIL, CUTS = (640 + 8 * i for i in range(8))
LOCK, CONDITION, PART = 768, 896, 1152
POOL_BYTES = PART + 128 * PARTS
# After a stall, callers work alone for this multiple of the time it lost, so stalls never cost more than a ninth of all time.
# If another process has taken a core, that is faster than waiting for it repeatedly.
PENALTY = 8
ROUSED = 3  # how many sleepers a thread wakes at most, each of which may wake as many: a wake-up costs a microsecond or more
# The caller's record: what a segment gets as its pool.
CALLER_POOL, CALLER_SCRATCH, CALLER_STRIDE, CALLER_BUDGET, CALLER_BYTES = 0, 8, 16, 24, 64

PARALLEL_FOR, WORKER, INIT, RING, TICKS, ENTER, LEAVE = (
    f"firebrick_{n}" for n in ("parallel_for", "worker", "pool_init", "pool_ring", "ticks", "pool_enter", "pool_leave")
)
PARKINGS = ("futex", "posix", "windows")


def parking(target: Target) -> str:
    """How threads wait on a target's system: ``futex`` (Linux), ``windows`` (WaitOnAddress) or ``posix`` (a condition)."""
    if "linux" in target.triple and target.arch in _FUTEX:
        return "futex"
    return "windows" if "windows" in target.triple or "win32" in target.triple else "posix"


def pool_ir(target: Target, how: str | None = None) -> str:
    """The pool's functions.

    Args:
        target: Where they run.
        how: How threads wait, one of ``PARKINGS``; the target's own way by default.
    """
    return "\n".join([clock_ir(target), _pause(target), _park(target, how or parking(target)), _POOL])


def clock_ir(target: Target) -> str:
    """``i64 firebrick_ticks()``: a clock of the processor that runs at one rate and costs no system call."""
    # not `readcyclecounter` on aarch64: programs may not read that register
    if target.arch == "aarch64":
        read = "call i64 @llvm.read_volatile_register.i64(metadata !0)"
        declared = 'declare i64 @llvm.read_volatile_register.i64(metadata)\n!0 = !{!"cntvct_el0"}'
    else:
        read, declared = "call i64 @llvm.readcyclecounter()", "declare i64 @llvm.readcyclecounter()"
    return f"""
{declared}
define i64 @{TICKS}() alwaysinline {{
  %now = {read}
  ret i64 %now
}}
"""


def _pause(target: Target) -> str:
    if target.arch == "x86_64":
        body, declared = "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    elif target.arch == "aarch64":
        body, declared = "call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"
    else:
        body, declared = 'fence syncscope("singlethread") seq_cst', ""
    return f"{declared}\ndefine internal void @pause() alwaysinline {{\n  {body}\n  ret void\n}}\n"


_FUTEX = {"x86_64": 202, "aarch64": 98}


def _park(target: Target, how: str) -> str:
    """``park(pool, word, seen)`` waits while a word has the value seen, or returns early; ``wake(pool, word, n)``."""
    if (
        how == "futex"
    ):  # futex(2): operations 128 (wait) and 129 (wake) of one process; 4 is EINTR, 11 EAGAIN: both return early
        number = _FUTEX[target.arch]
        return f"""
declare i64 @syscall(i64, ...)
define void @{INIT}(ptr %pool) {{
  ret void
}}
define internal void @park(ptr %pool, ptr %word, i32 %seen) noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  ret void
}}
define internal void @wake(ptr %pool, ptr %word, i32 %n) noinline {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i64 129, i32 %n, ptr null, ptr null, i64 0)
  ret void
}}
"""
    if how == "windows":
        return f"""
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressAll(ptr)
define void @{INIT}(ptr %pool) {{
  ret void
}}
define internal void @park(ptr %pool, ptr %word, i32 %seen) noinline {{
  %old = alloca i32
  store i32 %seen, ptr %old
  %r = call i32 @WaitOnAddress(ptr %word, ptr %old, i64 4, i32 -1)
  ret void
}}
define internal void @wake(ptr %pool, ptr %word, i32 %n) noinline {{
  call void @WakeByAddressAll(ptr %word)
  ret void
}}
"""
    return f"""
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define void @{INIT}(ptr %pool) {{
  %lock = getelementptr i8, ptr %pool, i64 {LOCK}
  %condition = getelementptr i8, ptr %pool, i64 {CONDITION}
  %a = call i32 @pthread_mutex_init(ptr %lock, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}}
define internal void @park(ptr %pool, ptr %word, i32 %seen) noinline {{
  %lock = getelementptr i8, ptr %pool, i64 {LOCK}
  %condition = getelementptr i8, ptr %pool, i64 {CONDITION}
  %a = call i32 @pthread_mutex_lock(ptr %lock)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %wait, label %leave
wait:
  %b = call i32 @pthread_cond_wait(ptr %condition, ptr %lock)
  br label %leave
leave:
  %c = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}}
define internal void @wake(ptr %pool, ptr %word, i32 %n) noinline {{
  %lock = getelementptr i8, ptr %pool, i64 {LOCK}
  %condition = getelementptr i8, ptr %pool, i64 {CONDITION}
  %a = call i32 @pthread_mutex_lock(ptr %lock)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %lock)
  ret void
}}
"""


_POOL = f"""
; The word of a part.
define internal ptr @part(ptr %pool, i64 %number) alwaysinline {{
  %apart = mul i64 %number, 128
  %at = add i64 %apart, {PART}
  %word = getelementptr i8, ptr %pool, i64 %at
  ret ptr %word
}}

; The first chunk of a part, of so many.
define internal i64 @first(i64 %number, i64 %chunks, i64 %parts) alwaysinline {{
  %times = mul i64 %number, %chunks
  %up = add i64 %times, %parts
  %up1 = sub i64 %up, 1
  %at = udiv i64 %up1, %parts
  ret i64 %at
}}

; How many chunks of the current job nobody has claimed.
define internal i64 @unclaimed(ptr %pool) {{
entry:
  %partsp = getelementptr i8, ptr %pool, i64 {CUTS}
  %parts = load i64, ptr %partsp
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %following, %look ]
  %sum = phi i64 [ 0, %entry ], [ %more, %look ]
  %word = call ptr @part(ptr %pool, i64 %number)
  %state = load atomic i64, ptr %word seq_cst, align 8
  %remaining = and i64 %state, 4294967295
  %more = add i64 %sum, %remaining
  %following = add i64 %number, 1
  %all = icmp eq i64 %following, %parts
  br i1 %all, label %leave, label %look
leave:
  ret i64 %more
}}

; Claims and runs chunks of the current job until none is left, first those of the own part; says how many it ran.
define internal i64 @work(ptr %pool, i64 %index) {{
entry:
  %donep = getelementptr i8, ptr %pool, i64 {DONE}
  %waitingp = getelementptr i8, ptr %pool, i64 {WAITING}
  %kernelp = getelementptr i8, ptr %pool, i64 {KERNEL}
  %bufsp = getelementptr i8, ptr %pool, i64 {BUFS}
  %gridp = getelementptr i8, ptr %pool, i64 {GRID}
  %chunkp = getelementptr i8, ptr %pool, i64 {CHUNK}
  %chunksp = getelementptr i8, ptr %pool, i64 {CHUNKS}
  %faultsp = getelementptr i8, ptr %pool, i64 {FAULTS}
  %scratchp = getelementptr i8, ptr %pool, i64 {SCRATCH}
  %stridep = getelementptr i8, ptr %pool, i64 {STRIDE}
  %partsp = getelementptr i8, ptr %pool, i64 {CUTS}
  %parts = load i64, ptr %partsp
  %first = urem i64 %index, %parts
  br label %next
next:
  %ran = phi i64 [ 0, %entry ], [ %ran, %claim ], [ %more, %run ], [ %ran, %pass ]
  %number = phi i64 [ %first, %entry ], [ %number, %claim ], [ %number, %run ], [ %other, %pass ]
  %empty = phi i64 [ 0, %entry ], [ %empty, %claim ], [ 0, %run ], [ %empties, %pass ]
  %word = call ptr @part(ptr %pool, i64 %number)
  %state = load atomic i64, ptr %word seq_cst, align 8
  %remaining = and i64 %state, 4294967295
  %none = icmp eq i64 %remaining, 0
  br i1 %none, label %pass, label %claim
pass:
  %following = add i64 %number, 1
  %end = icmp eq i64 %following, %parts
  %other = select i1 %end, i64 0, i64 %following
  %empties = add i64 %empty, 1
  %over = icmp eq i64 %empties, %parts
  br i1 %over, label %ended, label %next
claim:
  %kernel = load atomic ptr, ptr %kernelp monotonic, align 8
  %bufs = load atomic ptr, ptr %bufsp monotonic, align 8
  %grid = load atomic i64, ptr %gridp monotonic, align 8
  %chunk = load atomic i64, ptr %chunkp monotonic, align 8
  %chunks = load atomic i64, ptr %chunksp monotonic, align 8
  %faults = load atomic ptr, ptr %faultsp monotonic, align 8
  %scratch = load atomic ptr, ptr %scratchp monotonic, align 8
  %stride = load atomic i64, ptr %stridep monotonic, align 8
  %less = sub i64 %state, 1
  %swap = cmpxchg ptr %word, i64 %state, i64 %less acq_rel acquire
  %mine = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %mine, label %run, label %next
run:
  %behind = add i64 %number, 1
  %stop = call i64 @first(i64 %behind, i64 %chunks, i64 %parts)
  %at = sub i64 %stop, %remaining
  %begin = mul i64 %at, %chunk
  %far = add i64 %begin, %chunk
  %until = call i64 @llvm.umin.i64(i64 %far, i64 %grid)
  %offset = mul i64 %index, %stride
  %own = getelementptr i8, ptr %scratch, i64 %offset
  call void %kernel(ptr %bufs, i64 %begin, i64 %until, ptr %own, ptr %faults)
  %more = add i64 %ran, 1
  br label %next
ended:
  %idle = icmp eq i64 %ran, 0
  br i1 %idle, label %leave, label %report
report:  ; only now, so all that this thread ran was of one job, which is not over before
  %wanted = load atomic i64, ptr %chunksp monotonic, align 8
  %before = atomicrmw add ptr %donep, i64 %ran seq_cst
  %after = add i64 %before, %ran
  %all = icmp eq i64 %after, %wanted
  br i1 %all, label %last, label %leave
last:
  %waiting = load atomic i32, ptr %waitingp seq_cst, align 4
  %parked = icmp ne i32 %waiting, 0
  br i1 %parked, label %ring, label %leave
ring:
  store atomic i32 0, ptr %waitingp seq_cst, align 4
  call void @wake(ptr %pool, ptr %waitingp, i32 1)
  br label %leave
leave:
  ret i64 %ran
}}

; Runs all chunks on this thread, in order.
define internal void @alone(ptr %kernel, ptr %bufs, i64 %grid, i64 %chunk, ptr %scratch, ptr %faults) {{
entry:
  %any = icmp sgt i64 %grid, 0
  br i1 %any, label %loop, label %leave
loop:
  %begin = phi i64 [ 0, %entry ], [ %end, %loop ]
  %far = add i64 %begin, %chunk
  %end = call i64 @llvm.umin.i64(i64 %far, i64 %grid)
  call void %kernel(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults)
  %more = icmp ult i64 %end, %grid
  br i1 %more, label %loop, label %leave
leave:
  ret void
}}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @llvm.umin.i32(i32, i32)

define void @{PARALLEL_FOR}(ptr %caller, ptr %kernel, ptr %bufs, i64 %grid, i64 %chunk, ptr %faults) {{
entry:
  %pool = load ptr, ptr %caller
  %cscratchp = getelementptr i8, ptr %caller, i64 {CALLER_SCRATCH}
  %scratch = load ptr, ptr %cscratchp
  %cstridep = getelementptr i8, ptr %caller, i64 {CALLER_STRIDE}
  %stride = load i64, ptr %cstridep
  %threadsp = getelementptr i8, ptr %pool, i64 {THREADS}
  %ownerp = getelementptr i8, ptr %pool, i64 {OWNER}
  %short = icmp sle i64 %grid, %chunk
  br i1 %short, label %serial, label %crew
crew:
  %threads = load i64, ptr %threadsp
  %single = icmp sle i64 %threads, 1
  br i1 %single, label %serial, label %calm
calm:
  %untilp = getelementptr i8, ptr %pool, i64 {ALONE_UNTIL}
  %until = load atomic i64, ptr %untilp monotonic, align 8
  %began = call i64 @{TICKS}()
  %strained = icmp slt i64 %began, %until
  br i1 %strained, label %serial, label %own
own:
  %taken = load atomic i32, ptr %ownerp monotonic, align 4
  %busy = icmp ne i32 %taken, 0
  br i1 %busy, label %serial, label %try
try:
  %swap = cmpxchg ptr %ownerp, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %free, label %publish, label %serial
serial:
  call void @alone(ptr %kernel, ptr %bufs, i64 %grid, i64 %chunk, ptr %scratch, ptr %faults)
  ret void
publish:
  %up = add i64 %grid, %chunk
  %up1 = sub i64 %up, 1
  %chunks = udiv i64 %up1, %chunk
  %kernelp = getelementptr i8, ptr %pool, i64 {KERNEL}
  %bufsp = getelementptr i8, ptr %pool, i64 {BUFS}
  %gridp = getelementptr i8, ptr %pool, i64 {GRID}
  %chunkp = getelementptr i8, ptr %pool, i64 {CHUNK}
  %chunksp = getelementptr i8, ptr %pool, i64 {CHUNKS}
  %faultsp = getelementptr i8, ptr %pool, i64 {FAULTS}
  %scratchp = getelementptr i8, ptr %pool, i64 {SCRATCH}
  %stridep = getelementptr i8, ptr %pool, i64 {STRIDE}
  %donep = getelementptr i8, ptr %pool, i64 {DONE}
  %waitingp = getelementptr i8, ptr %pool, i64 {WAITING}
  %bellp = getelementptr i8, ptr %pool, i64 {BELL}
  %sleepersp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %spinp = getelementptr i8, ptr %pool, i64 {SPIN_BUSY}
  store atomic ptr %kernel, ptr %kernelp monotonic, align 8
  store atomic ptr %bufs, ptr %bufsp monotonic, align 8
  store atomic i64 %grid, ptr %gridp monotonic, align 8
  store atomic i64 %chunk, ptr %chunkp monotonic, align 8
  store atomic i64 %chunks, ptr %chunksp monotonic, align 8
  store atomic ptr %faults, ptr %faultsp monotonic, align 8
  store atomic ptr %scratch, ptr %scratchp monotonic, align 8
  store atomic i64 %stride, ptr %stridep monotonic, align 8
  store atomic i64 0, ptr %donep monotonic, align 8
  %jobp = getelementptr i8, ptr %pool, i64 {JOB}
  %partsp = getelementptr i8, ptr %pool, i64 {CUTS}
  %parts = load i64, ptr %partsp
  %old = load i64, ptr %jobp
  %job = add i64 %old, 4294967296
  store i64 %job, ptr %jobp
  br label %offer
offer:  ; the caller's own part last, so that a thread that watches sees its own part first
  %behind = phi i64 [ %parts, %publish ], [ %number, %offer ]
  %stop = phi i64 [ %chunks, %publish ], [ %start, %offer ]
  %number = sub i64 %behind, 1
  %start = call i64 @first(i64 %number, i64 %chunks, i64 %parts)
  %size = sub i64 %stop, %start
  %state = or i64 %job, %size
  %word = call ptr @part(ptr %pool, i64 %number)
  store atomic i64 %state, ptr %word release, align 8
  %left = icmp ne i64 %number, 0
  br i1 %left, label %offer, label %offered
offered:
  %rung = atomicrmw add ptr %bellp, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepersp seq_cst, align 4
  %anyone = icmp ne i32 %asleep, 0
  br i1 %anyone, label %rouse, label %join
rouse:
  %few = trunc i64 %chunks to i32
  %helpers = sub i32 %few, 1
  %count = call i32 @llvm.umin.i32(i32 %helpers, i32 {ROUSED})
  call void @wake(ptr %pool, ptr %bellp, i32 %count)
  br label %join
join:
  %did = call i64 @work(ptr %pool, i64 0)
  %spin = load i64, ptr %spinp
  %since = call i64 @{TICKS}()
  br label %look
look:
  %done = load atomic i64, ptr %donep acquire, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %leave, label %linger
linger:
  call void @pause()
  %now = call i64 @{TICKS}()
  %waited = sub i64 %now, %since
  %patient = icmp ult i64 %waited, %spin
  br i1 %patient, label %look, label %doze
doze:
  store atomic i32 1, ptr %waitingp seq_cst, align 4
  %again = load atomic i64, ptr %donep seq_cst, align 8
  %complete = icmp eq i64 %again, %chunks
  br i1 %complete, label %leave, label %park
park:
  call void @park(ptr %pool, ptr %waitingp, i32 1)
  br label %look
leave:
  ; longer than the caller would have taken alone, by the pace of its own chunks: a thread lost its core while it held one
  %ended = call i64 @{TICKS}()
  %worked = sub i64 %since, %began
  %own1 = call i64 @llvm.umax.i64(i64 %did, i64 1)
  %each = udiv i64 %worked, %own1
  %alone = mul i64 %each, %chunks
  %stallp = getelementptr i8, ptr %pool, i64 {STALL}
  %slack = load i64, ptr %stallp
  %fair = add i64 %alone, %slack
  %whole = sub i64 %ended, %began
  %stalled = icmp sgt i64 %whole, %fair
  br i1 %stalled, label %strain, label %free1
strain:
  %lost = sub i64 %whole, %alone
  %rest = mul i64 %lost, {PENALTY}
  %then = add i64 %ended, %rest
  store atomic i64 %then, ptr %untilp monotonic, align 8
  br label %free1
free1:
  store atomic i32 0, ptr %waitingp monotonic, align 4
  store atomic i32 0, ptr %ownerp release, align 4
  ret void
}}

; Around a segment that has work for several threads: they stay awake in it, and wake up while its first kernels run.
define void @{ENTER}(ptr %caller) {{
  %pool = load ptr, ptr %caller
  %activep = getelementptr i8, ptr %pool, i64 {ACTIVE}
  %bellp = getelementptr i8, ptr %pool, i64 {BELL}
  %sleepersp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %a = atomicrmw add ptr %activep, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepersp seq_cst, align 4
  %anyone = icmp ne i32 %asleep, 0
  %untilp = getelementptr i8, ptr %pool, i64 {ALONE_UNTIL}
  %until = load atomic i64, ptr %untilp monotonic, align 8
  %now = call i64 @{TICKS}()
  %calm = icmp sge i64 %now, %until
  %call = and i1 %anyone, %calm
  br i1 %call, label %rouse, label %leave
rouse:
  %b = atomicrmw add ptr %bellp, i32 1 seq_cst
  call void @wake(ptr %pool, ptr %bellp, i32 {ROUSED})
  br label %leave
leave:
  ret void
}}
define void @{LEAVE}(ptr %caller) {{
  %pool = load ptr, ptr %caller
  %activep = getelementptr i8, ptr %pool, i64 {ACTIVE}
  %a = atomicrmw sub ptr %activep, i32 1 seq_cst
  ret void
}}

; Wakes all workers, so that they see whether they are told to stop.
define void @{RING}(ptr %pool) {{
  %bellp = getelementptr i8, ptr %pool, i64 {BELL}
  %b = atomicrmw add ptr %bellp, i32 1 seq_cst
  call void @wake(ptr %pool, ptr %bellp, i32 2147483647)
  ret void
}}

; What a worker does until it is told to stop: work, watch for a while, sleep.
define void @{WORKER}(ptr %pool, i64 %index) {{
entry:
  %stopp = getelementptr i8, ptr %pool, i64 {STOP}
  %bellp = getelementptr i8, ptr %pool, i64 {BELL}
  %sleepersp = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %activep = getelementptr i8, ptr %pool, i64 {ACTIVE}
  %busyp = getelementptr i8, ptr %pool, i64 {SPIN_BUSY}
  %idlep = getelementptr i8, ptr %pool, i64 {SPIN_IDLE}
  %start = call i64 @{TICKS}()
  br label %watch
watch:
  %since = phi i64 [ %start, %entry ], [ %since, %patience ], [ %rested, %worked ], [ %woken, %awake ], [ %woken, %rouse ]
  %ran = call i64 @work(ptr %pool, i64 %index)
  %useful = icmp ne i64 %ran, 0
  br i1 %useful, label %worked, label %idle
worked:
  %rested = call i64 @{TICKS}()
  br label %watch
idle:
  %stop = load atomic i64, ptr %stopp acquire, align 8
  %ended = icmp ne i64 %stop, 0
  br i1 %ended, label %leave, label %patience
patience:
  call void @pause()
  %now = call i64 @{TICKS}()
  %waited = sub i64 %now, %since
  %active = load atomic i32, ptr %activep monotonic, align 4
  %inside = icmp ne i32 %active, 0
  %busy = load i64, ptr %busyp
  %quiet = load i64, ptr %idlep
  %limit = select i1 %inside, i64 %busy, i64 %quiet
  %patient = icmp ult i64 %waited, %limit
  br i1 %patient, label %watch, label %tired
tired:
  %heard = load atomic i32, ptr %bellp seq_cst, align 4
  %s = atomicrmw add ptr %sleepersp, i32 1 seq_cst
  %remaining = call i64 @unclaimed(ptr %pool)
  %none = icmp eq i64 %remaining, 0
  %stops = load atomic i64, ptr %stopp seq_cst, align 8
  %goes = icmp eq i64 %stops, 0
  %sleep = and i1 %none, %goes
  br i1 %sleep, label %park, label %awake
park:
  call void @park(ptr %pool, ptr %bellp, i32 %heard)
  br label %awake
awake:
  %t = atomicrmw sub ptr %sleepersp, i32 1 seq_cst
  %woken = call i64 @{TICKS}()
  ; whom the caller did not wake, those wake whom it woke
  %left = call i64 @unclaimed(ptr %pool)
  %much = icmp ugt i64 %left, 1
  %others = icmp ugt i32 %t, 1
  %pass = and i1 %much, %others
  br i1 %pass, label %rouse, label %watch
rouse:
  call void @wake(ptr %pool, ptr %bellp, i32 {ROUSED})
  br label %watch
leave:
  ret void
}}
"""

LIBRARIES = ("api-ms-win-core-synch-l1-2-0",) if sys.platform == "win32" else ()
