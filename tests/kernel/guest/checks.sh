# What the guest's scripts of checks share. Sourced.
LIMIT_S=60
failures=0

# check NAME COMMAND…: one line with its verdict and time, and what it printed if it failed.
check() {
    local name=$1 start_us=${EPOCHREALTIME/./} verdict=ok output took_ms
    shift
    output=$("$@" 2>&1) || verdict=FAILED
    took_ms=$(((${EPOCHREALTIME/./} - start_us) / 1000))
    printf '  %-7s %6d ms  %s\n' $verdict $took_ms "$name"
    [ $verdict = ok ] || { echo "$output"; failures=$((failures + 1)); }
}

# listening PORT: whether somebody waits for callers there, by TCP or by the connection manager.
listening() { ss -Hltn "sport = :$1" | grep -q . || rdma resource show cm_id | grep -q "LISTEN.*:$1\b"; }

# both PORT SERVER CLIENT: runs the two command lines, the client once the server listens; both must succeed.
both() {
    local port=$1 server
    timeout $LIMIT_S bash -c "$2" &
    server=$!
    until listening "$port"; do
        kill -0 $server 2>/dev/null || { echo "the server ended before it listened"; return 1; }
        sleep 0.1
    done
    timeout $LIMIT_S bash -c "$3" || { kill $server; return 1; }
    wait $server
}
