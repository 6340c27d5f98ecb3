#!/bin/sh
# Runs one step of a build. Its output goes to build/log/NAME and is printed in full only if the step fails. While it
# runs, the latest line of output is shown: in place on a terminal, otherwise as a new line every 20 seconds.
# Usage: tools/step.sh NAME COMMAND [ARGUMENT…]
name=$1
shift
mkdir -p build/log
log=build/log/$name
: >"$log"
if [ -t 1 ]; then interval=1; else interval=20; fi

# The latest line, without escape sequences and the folders of object files.
latest() {
    tail -n 3 "$log" | tr '\r' '\n' | grep '[^ ]' | tail -n 1 |
        sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/^ *//; s/Building CXX object .*\.dir\///; s/Linking CXX [a-z]* [a-z]*/linking/'
}

# Clears the line on a terminal, and prints "  NAME…" cut to the width of the screen.
show() {
    columns=$(stty size <&1 2>/dev/null | cut -d ' ' -f 2)
    printf '\r\033[K%.*s' $((${columns:-80} - 1)) "$*"
}

report() {
    seconds=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        seconds=$((seconds + 1))
        [ $((seconds % interval)) = 0 ] || continue
        if [ -t 1 ]; then
            show "  $name  $seconds s  $(latest)"
        else
            printf '  %s  %d s  %.100s\n' "$name" $seconds "$(latest)"
        fi
    done
}

finish() {
    kill $reporter 2>/dev/null
    wait $reporter 2>/dev/null
    [ ! -t 1 ] || show "  $name"
    [ ! -t 1 ] || echo
}

# The command stays in the foreground: a shell script's background commands ignore Ctrl-C.
if [ -t 1 ]; then show "  $name"; else echo "  $name"; fi
report &
reporter=$!
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
"$@" >>"$log" 2>&1
status=$?
trap - EXIT
finish
[ $status = 0 ] || cat "$log"
exit $status
