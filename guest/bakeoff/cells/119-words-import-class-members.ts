// returns: ["imported",3,5,1]
class Job {
  import(): string { return "imported"; }
  export<T>(v: T): T { return v; }
  static require = 5;
  "import type" = 1;
}
const j = new Job();
return [j.import(), j.export(3), Job.require, j["import type"]];
