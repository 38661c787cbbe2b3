#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one or more: tests/gpu.sh [options]
#   --bench        also the sweep, the enqueue overhead, lists, the reducer and sparse allreduces, those of
#                  PyTorch too where it is installed (build/gpu/out/*.txt, *.json, *.csv)
#   --figures      those of --bench, and no test
#   --parts LIST   only these of the tests: c, alone (those that bound a time or compare a device's free
#                  memory, one at a time), shared (processes that share the first GPU: one will do),
#                  launched, sanitizers, rust, python ("launched rust"); what takes longer than a lent
#                  machine's call is run in two
#   --sanitizer    also the kernels under compute-sanitizer's four tools; racecheck, by far the slowest,
#                  in slices side by side, one for each processor
#   --racecheck    only that, of the quick suite, and no other test; TRIB_TEST_PART=pull, say, for one part
#   --scenarios    only the scenarios of aborts on 2 GPUs or more, with their table, and no other test:
#                  8 minutes; 5 with TRIB_TEST_SCENARIO_RUNS=1
#   --only NUMBERS only these of them ("7 36"), with --scenarios
#   --address      with the address sanitizer, in a build of its own
#   --slices N     so many slices. One that takes longer than 300 s (with --racecheck, --seconds) is
#                  cut off
#   --rust DIR     also every executable in DIR: Rust test programs that were built elsewhere; one
#                  whose name begins with "train" is the training example. To make DIR, in rust/:
#                    TRIBUTARY_NCCL=ON cargo test -p tributary-ccl -p tributary-flodl \
#                        --features tributary-ccl/half,tributary-ccl/cudarc --no-run 2>&1 |
#                        sed -n 's/.*Executable .*(\(.*\))$/\1/p' | xargs cp -t DIR && strip DIR/*
#                  and in the same way target/release/examples/train. (A hash ends each name, so no
#                  program of one crate replaces one of the other.)
#   --python WHEEL also the tests of the Python package, which was built elsewhere as that wheel; with
#                  --bench the steps of PyTorch's DDP with its hooks
#   --jobs N       so many tests side by side (a fifth of the processors, 1 to 4; of more than 50 of them
#                  6); not of what measures
#   --out DIR      where logs and figures go (build/gpu/out)
#   --seconds N    for all of it (900); what does not fit is cut off and counts as failed
# It builds the C side itself, for the architecture of the first GPU; no Rust is needed. CUDA and
# NCCL are found as CMakeLists.txt says, NCCL_HOME and CUDA_HOME included.
set -u
cd "$(dirname "$0")/.."
build=build/gpu out=build/gpu/out bench=0 figures=0 sanitizer=0 racecheck=0 scenarios=0 rust='' wheel='' seconds=900 slices=$(nproc)
jobs=$(($(nproc) < 5 ? 1 : $(nproc) > 50 ? 6 : $(nproc) > 20 ? 4 : $(nproc) / 5))
only=() sanitize= asked=0 parts='c alone shared launched sanitizers rust python'
while [ $# -gt 0 ]; do
    case $1 in
    --bench) bench=1 ;;
    --figures) bench=1 figures=1 ;;
    --parts) parts=$2 asked=1 && shift ;;
    --sanitizer) sanitizer=1 ;;
    --racecheck) racecheck=1 ;;
    --scenarios) scenarios=1 ;;
    --only) read -r -a only <<<"$2" && shift ;;
    --address) build=build/gpu-address sanitize=address ;;
    --python) wheel=$2 && shift ;;
    --slices) slices=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --rust) rust=$2 && shift ;;
    --out) out=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    *) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0" && exit 2 ;;
    esac
    shift
done
# lacks PART OPTION: a part that was asked for has nothing to run.
lacks() {
    [ $asked = 1 ] && case " $parts " in *" $1 "*) echo "gpu.sh: the part $1 takes $2" >&2 && exit 2 ;; esac
}
[ -n "$rust" ] || lacks rust '--rust DIR'
[ -n "$wheel" ] || lacks python '--python WHEEL'
[ $sanitizer = 1 ] || lacks sanitizers --sanitizer
for name in ${parts:-nothing}; do
    case $name in
    c | alone | shared | launched | sanitizers | rust | python) ;;
    *) echo "gpu.sh: there is no part \"$name\"" >&2 && exit 2 ;;
    esac
done
mkdir -p "$out"
log=$out/gpu.log part=$out/part.log
: >"$log"
passed=0 failed=0 skipped=0 needs_gpu=0
# Multicast takes rights that a shared machine may not give.
export NCCL_NVLS_ENABLE=0
# So that the log of a program that hung ends with the case in which it did.
export TRIB_TEST_VERBOSE=1
# CUDA maps where the sanitizer keeps nothing; what the driver holds at the end is no leak.
export ASAN_OPTIONS=protect_shadow_gap=0:detect_leaks=0:alloc_dealloc_mismatch=0:malloc_context_size=12
# For the Rust tests, which take host by themselves.
export TRIBUTARY_TEST_BACKEND=nccl

# try SECONDS NAME COMMAND...: run it, never longer than that, all output to the log; one line here,
# with what was skipped and, after a failure, the end of the output.
try() {
    local limit=$1 name=$2 began=$SECONDS left=$((seconds - SECONDS)) status
    shift 2
    [ "$limit" -lt "$left" ] || limit=$left
    if [ "$limit" -le 0 ]; then
        echo "failed   $name: the ${seconds} s are over"
        failed=$((failed + 1))
        return 1
    fi
    printf '\n=== %s: %s\n' "$name" "$*" >>"$log"
    timeout -k 5 "$limit" "$@" >"$part" 2>&1 </dev/null
    status=$?
    cat "$part" >>"$log"
    case $status in
    0) printf 'passed  ' && passed=$((passed + 1)) ;;
    77) if [ "$needs_gpu" = 1 ]; then # there is one, so it must not skip
            printf 'FAILED  ' && failed=$((failed + 1))
        else
            printf 'skipped ' && skipped=$((skipped + 1))
        fi ;;
    124 | 137) printf 'HUNG    ' && failed=$((failed + 1)) ;;
    *) printf 'FAILED  ' && failed=$((failed + 1)) ;;
    esac
    printf ' %s: %d s' "$name" $((SECONDS - began))
    grep -E '^[a-z0-9_]+: [0-9]+ passed|^test result:|^Ran [0-9]+ tests|^nccl: |ERROR SUMMARY|RACECHECK SUMMARY' "$part" |
        tail -n 4 | sed 's/^/; /' | tr -d '\n'
    echo
    grep -E '^ *skipped: ' "$part" | sort | uniq -c | sort -rn | head -n 4 | sed 's/^ */           /'
    case $status in 0 | 77) ;; *) tail -n 15 "$part" | sed 's/^/    | /' ;; esac
    return $status
}

# later SECONDS NAME COMMAND...: the same, by the next run_queue, which makes $jobs of them side by side.
queue=()
later() { queue+=("needs_gpu=$needs_gpu; try $(printf '%q ' "$@")"); }

# One of the queue, with a log and a count of its own. The lines of `try` begin with what came of it.
run_queued() {
    log=$out/queue.$1.log part=$out/queue.$1.part
    : >"$log"
    eval "${queue[$1]}" >"$out/queue.$1.text"
    rm -f "$part"
}

run_queue() {
    local i text
    for i in "${!queue[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do
            wait -n
        done
        run_queued "$i" &
    done
    wait
    for i in "${!queue[@]}"; do
        text=$out/queue.$i.text
        cat "$text"
        cat "$out/queue.$i.log" >>"$log"
        case $(head -c 7 "$text") in
        passed*) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) ;;
        esac
        rm -f "$text" "$out/queue.$i.log"
    done
    queue=()
}

# racecheck_slices SECONDS: every case of the quick suite once, the slices spread over the GPUs, each no
# longer than that; the end of what a slice that went wrong says, and one line for all of them.
racecheck_slices() {
    local limit=$1 began=$SECONDS left=$((seconds - SECONDS)) cases=0 all='' wrong=0 i part status found
    local pids=()
    [ "$limit" -lt "$left" ] || limit=$left
    [ "$limit" -gt 0 ] || limit=1
    for i in $(seq "$slices"); do
        part=$out/racecheck.$i.log
        CUDA_VISIBLE_DEVICES=$((i % gpus)) TRIB_TEST_QUICK=1 TRIB_TEST_RACECHECK=1 \
            timeout -k 5 "$limit" compute-sanitizer --tool racecheck --error-exitcode 9 \
            $build/tests/kernels_cuda_test --slice "$i/$slices" >"$part" 2>&1 </dev/null &
        pids+=($!)
    done
    for i in $(seq "$slices"); do
        part=$out/racecheck.$i.log
        wait "${pids[i - 1]}"
        status=$?
        found=$(sed -n 's/^kernels_cuda_test: \([0-9]*\) passed.*/\1/p' "$part" | tail -n 1)
        cases=$((cases + ${found:-0}))
        found=$(sed -n 's/^slice .* of \([0-9]*\) cases$/\1/p' "$part" | tail -n 1)
        all=${found:-$all}
        printf '\n=== racecheck %s/%s\n' "$i" "$slices" >>"$log"
        cat "$part" >>"$log"
        [ $status = 0 ] && rm -f "$part" && continue
        wrong=$((wrong + 1))
        echo "    slice $i/$slices ends with $status:"
        tail -n 8 "$part" | sed 's/^/    | /'
    done
    if [ $wrong = 0 ] && [ "$cases" -gt 0 ] && [ "$cases" = "$all" ]; then
        printf 'passed  ' && passed=$((passed + 1))
    else
        printf 'FAILED  ' && failed=$((failed + 1))
    fi
    echo " racecheck: $((SECONDS - began)) s; $cases of ${all:-?} cases in $slices slices, $wrong of which failed"
}

finish() {
    rm -f "$part"
    echo
    echo "what was run is in $log; ${SECONDS} s"
    echo "gpu: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}

# -------------------------------------------------------------------------------- the machine

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
if [ "$gpus" = 0 ]; then
    echo "  skipped: nvidia-smi shows no GPU"
    skipped=1
    finish
fi
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
echo "$gpus GPUs: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)," \
    "sm_$architecture, driver" \
    "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"

# A wheel's NCCL is the one that programs on this machine use; the system's may be older.
if [ -z "${NCCL_HOME:-}${NCCL_ROOT:-}" ]; then
    packages=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
    [ -f "$packages/nvidia/nccl/include/nccl.h" ] && export NCCL_HOME=$packages/nvidia/nccl
fi
export PATH=$PATH:/usr/local/cuda/bin

generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
# Lines of the kernels, for the sanitizers and profilers of CUDA.
try 60 configure cmake -S . -B $build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DTRIBUTARY_NCCL=ON -DTRIBUTARY_RUST=OFF "-DTRIBUTARY_SANITIZE=$sanitize" \
    "-DCMAKE_CUDA_ARCHITECTURES=$architecture" -DCMAKE_CUDA_FLAGS=-lineinfo || finish
grep 'backend nccl' "$log"
try 240 build cmake --build $build --parallel "$(nproc)" || finish

nccl=$(sed -n 's/^NCCL_LIBRARY:[A-Z]*=//p' $build/CMakeCache.txt)
export LD_LIBRARY_PATH=${nccl%/*}:${LD_LIBRARY_PATH:-}

# -------------------------------------------------------------------------------------- tests

if [ $racecheck = 1 ]; then
    racecheck_slices "$seconds"
    finish
fi
if [ $scenarios = 1 ]; then
    try "$seconds" scenarios $build/tests/scenarios_nccl_test "${only[@]+"${only[@]}"}"
    sed -n '/^ *scenario  /,$p' "$out/part.log" | tee "$out/scenarios.txt"
    finish
fi

# What takes minutes, longest first; then everything else.
slow='abort_nccl_test sparse_test no_memory_processes_test'
alone='killed_nccl_test windows_gpus_test'
c_tests() {
    local n i program name
    needs_gpu=1
    for n in 4 3 2 1; do
        [ $n -gt "$gpus" ] || later 560 "sparse_nccl_test on $n, aborts" \
            env TRIB_TEST_PART=aborts $build/tests/sparse_nccl_test $n
    done
    for n in 4 3 2 1; do
        [ $n -gt "$gpus" ] || later 420 "sparse_nccl_test on $n, all but aborts" \
            env TRIB_TEST_PART=-aborts $build/tests/sparse_nccl_test $n
    done
    needs_gpu=0
    for name in $slow; do
        later 420 "$name" "$build/tests/$name"
    done
    needs_gpu=1
    for i in 1 2 3 4; do
        later 240 "kernels_cuda_test, part $i" $build/tests/kernels_cuda_test --slice $i/4
    done
    for n in 4 3 2 1; do
        [ $n -gt "$gpus" ] || later 240 "backend_nccl_test on $n" $build/tests/backend_nccl_test $n
    done
    for program in $build/tests/*_cuda_test; do
        case $program in
        */kernels_cuda_test) ;;
        *) later 240 "$(basename "$program")" "$program" ;;
        esac
    done
    needs_gpu=0
    # The others, on all GPUs: those for nccl, and those that take the best backend there is.
    for program in $build/tests/*_test; do
        name=$(basename "$program")
        case $name in
        *_host_test | *_cuda_test | kernels_* | backend_nccl_test) continue ;;
        sparse_nccl_test | sparse_one_gpu_test) continue ;;
        injection_test) continue ;; # 15 minutes, on host alone
        scenarios_nccl_test) continue ;; # --scenarios
        esac
        case " $slow $alone " in
        *" $name "*) ;;
        *) later 240 "$name" "$program" ;;
        esac
    done
    run_queue
}

# Beside other programs a process that is to answer within a time may not run, and a device's memory is theirs too.
alone_tests() {
    local name
    for name in $alone; do
        try 240 "$name" "$build/tests/$name"
    done
}

# Processes that share the first GPU; by the ranks that TRIB_TEST_ONE_GPU says, they have its memory in common.
shared_tests() {
    local n name
    needs_gpu=1
    later 420 sparse_one_gpu_test $build/tests/sparse_one_gpu_test
    for n in 3 4; do
        later 240 "sparse_one_gpu_test, $n that reach each other" env TRIB_TEST_ONE_GPU=$n $build/tests/sparse_one_gpu_test $n
    done
    for n in 2 4 5 8; do
        for name in processes_gpus_test symmetric_gpus_test near_gpus_test types_gpus_test; do
            later 240 "$name, $n on one GPU" env TRIB_TEST_ONE_GPU=$n $build/tests/$name 4
        done
        later 240 "killed_gpus_test, $n on one GPU" env TRIB_TEST_ONE_GPU=$n $build/tests/killed_gpus_test
    done
    needs_gpu=0
    run_queue
}

mpirun="mpirun|--allow-run-as-root|--oversubscribe|-n|$gpus"
torchrun="python3|-m|torch.distributed.run|--standalone|--nproc_per_node|$gpus|--no_python"
has_mpirun=$(mpirun --version 2>/dev/null | grep -c 'Open MPI')
has_torchrun=$(python3 -c 'import torch; print(1)' 2>/dev/null)

launched() {
    try 90 "$1" cmake -DPROGRAM=$build/tests/job/launched -DLAUNCHER="$2" -DCOMMAND="${3:-}" -DRANKS="$gpus" \
        -DBACKEND=nccl -DWORK="$PWD/$out/launched" -P tests/job/launched.cmake
}

# A communicator of processes that a launcher starts, one for each GPU.
launched_jobs() {
    local launcher
    [ "$gpus" -gt 1 ] || return
    for launcher in torchrun openmpi mpich slurm; do
        launched "a job by the variables of $launcher" $launcher
    done
    [ "$has_mpirun" != 1 ] || launched "a job under mpirun" openmpi "$mpirun"
    [ "$has_torchrun" != 1 ] || launched "a job under torchrun" torchrun "$torchrun"
}

sanitizers() {
    local tool report
    command -v compute-sanitizer >/dev/null || echo "compute-sanitizer is not on PATH"
    for tool in memcheck initcheck synccheck; do
        # A case provokes a refused launch: CUDA's own errors are for the program to check.
        report=()
        [ $tool = memcheck ] && report=(--report-api-errors no)
        TRIB_TEST_QUICK=1 try 90 $tool compute-sanitizer --tool $tool "${report[@]}" \
            --error-exitcode 9 $build/tests/kernels_cuda_test
    done
    racecheck_slices 300
}

# as_slurm N COMMAND...: N processes at the same time, with the variables that srun gives on one host.
as_slurm() {
    local n=$1 job=$RANDOM$RANDOM rank pid status=0 pids=()
    shift
    for rank in $(seq 0 $((n - 1))); do
        env SLURM_PROCID="$rank" SLURM_LOCALID="$rank" SLURM_NTASKS="$n" SLURM_STEP_NUM_TASKS="$n" \
            SLURM_JOB_ID="$job" SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost "$@" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || status=$?
    done
    return $status
}
export -f as_slurm

rust_train() {
    local program=$1 name
    name=$(basename "$program")
    try 60 "$name" "$program" --backend nccl --ranks "$gpus"
    [ "$gpus" -gt 1 ] || return
    try 60 "$name, a process killed" "$program" --backend nccl --ranks "$gpus" --processes --kill-rank 1 \
        --at-step 100
    [ "$has_mpirun" != 1 ] || try 60 "$name, under mpirun" ${mpirun//|/ } "$program" --launched --backend nccl
    [ "$has_torchrun" != 1 ] || try 60 "$name, under torchrun" ${torchrun//|/ } "$program" --launched \
        --backend nccl
    try 60 "$name, by the variables of slurm" bash -c 'as_slurm "$@"' - "$gpus" "$program" --launched \
        --backend nccl
}

rust_tests() {
    local program
    for program in "$rust"/*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        case $(basename "$program") in
        train*) rust_train "$program" ;;
        *) later 120 "$(basename "$program")" "$program" --test-threads=1 ;;
        esac
    done
    run_queue
}

# The package, where it is to be had by PYTHONPATH.
package=$(realpath -m "$out/python")
install_wheel() {
    rm -rf "$package"
    try 60 "install the wheel" python3 -m pip install --quiet --no-index --no-deps --target "$package" "$wheel"
}

python_tests() {
    try 300 python env -C rust/tributary-py PYTHONPATH="$package" \
        python3 -W error -X faulthandler -m unittest --quiet
}

[ -z "$wheel" ] || install_wheel || wheel=
if [ $figures = 0 ]; then
    for name in $parts; do
        case $name in
        c) c_tests ;;
        alone) alone_tests ;;
        shared) shared_tests ;;
        launched) launched_jobs ;;
        sanitizers) [ $sanitizer = 0 ] || sanitizers ;;
        rust) [ -z "$rust" ] || rust_tests ;;
        python) [ -z "$wheel" ] || python_tests ;;
        esac
    done
fi

# -------------------------------------------------------------------------------------- figures

# figure SECONDS FILE COMMAND...: as try, and the table goes to FILE and to the screen.
figure() {
    local limit=$1 file=$out/$2.txt name=$2
    shift 2
    try "$limit" "$name" "$@" || return
    cp "$out/part.log" "$file"
    tail -n 40 "$file"
}

if [ $bench = 1 ]; then
    figure 90 kernels $build/benches/trib_kernels --backend cuda
    figure 90 sweep $build/benches/trib_sweep --backend nccl --begin 1K --end 1G --factor 16 \
        --json "$out/sweep.json"
    figure 60 sweep_all $build/benches/trib_sweep --backend nccl --collective all --begin 64K \
        --end 64M --factor 32 --json "$out/sweep_all.json"
    figure 60 sweep_small $build/benches/trib_sweep --backend nccl --eager --graph --begin 1K \
        --end 1M --variant default,windows --json "$out/sweep_small.json"
    figure 60 sweep_others $build/benches/trib_sweep --backend nccl --eager --begin 4K --end 4K \
        --collective allgather,reduce_scatter,broadcast,barrier --variant default,windows --json "$out/sweep_others.json"
    figure 90 overhead $build/benches/trib_overhead nccl
    [ "$gpus" -lt 2 ] || figure 90 push $build/benches/trib_push
    [ "$gpus" -lt 2 ] || figure 180 pull $build/benches/trib_pull 20 64
    [ "$gpus" -lt 2 ] || figure 90 processes_small $build/benches/trib_sweep --backend nccl --processes --eager --graph \
        --begin 1K --end 1M --variant default,symmetric
    [ "$gpus" -lt 2 ] || figure 90 processes_large $build/benches/trib_sweep --backend nccl --processes --begin 4M \
        --end 1G --variant default,symmetric
    [ "$gpus" -lt 2 ] || figure 60 processes_lists $build/benches/trib_lists nccl "$gpus" 60 resnet50 processes
    figure 60 lists $build/benches/trib_lists nccl "$gpus" 60
    figure 60 lists_2000 $build/benches/trib_lists nccl "$gpus" 200 2000x1000in2M
    figure 60 reducer $build/benches/trib_reducer nccl "$gpus" 60
    figure 60 momentum $build/benches/trib_kernels --backend cuda --count 256M --density 0.01 --momentum 0.9
    figure 90 sparse $build/benches/trib_sparse --backend nccl --density 0.01 \
        --count 1M,25557032,256M --iterations 20 --warmup 5 --csv "$out/sparse.csv"
    figure 120 sparse_densities $build/benches/trib_sparse --backend nccl --density 0.001,0.05 \
        --count 25557032,256M --iterations 10 --warmup 3 --csv "$out/sparse_densities.csv"
    sockets=(env NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_CUMEM_HOST_ENABLE=0)
    [ "$gpus" -lt 2 ] || figure 120 sparse_sockets "${sockets[@]}" $build/benches/trib_sparse --backend nccl \
        --density 0.01 --count 1M,25557032 --iterations 6 --warmup 2 --csv "$out/sparse_sockets.csv"
    torch=(python3 -m torch.distributed.run --nproc-per-node "$gpus")
    if [ "$has_torchrun" = 1 ]; then
        figure 90 torch_sparse "${torch[@]}" benches/torch_sparse.py --density 0.01
        [ "$gpus" -lt 2 ] || TRIBUTARY_LIBRARY=$PWD/$build/libtributary.so figure 90 torch_reducer \
            "${torch[@]}" benches/torch_reducer.py
        [ -z "$wheel" ] || PYTHONPATH=$package figure 90 torch_hooks "${torch[@]}" benches/torch_hooks.py
    fi
fi
finish
