// returns: [true,true,false,true,false]
interface Clock { now(): number }
class FakeClock implements Clock {
  constructor(private t: number = 0) {}
  now(): number { return this.t; }
  advance(ms: number): void { this.t += ms; }
}
class TokenBucket {
  private tokens: number;
  private last: number;
  constructor(private readonly clock: Clock, private readonly capacity: number, private readonly perSecond: number) {
    this.tokens = capacity;
    this.last = clock.now();
  }
  private refill(): void {
    const now = this.clock.now();
    this.tokens = Math.min(this.capacity, this.tokens + ((now - this.last) / 1000) * this.perSecond);
    this.last = now;
  }
  take(n = 1): boolean {
    this.refill();
    if (this.tokens < n) return false;
    this.tokens -= n;
    return true;
  }
}
const clock = new FakeClock();
const bucket = new TokenBucket(clock, 2, 1);
const log: boolean[] = [bucket.take(), bucket.take(), bucket.take()];
clock.advance(1500);
log.push(bucket.take(), bucket.take());
return log;
