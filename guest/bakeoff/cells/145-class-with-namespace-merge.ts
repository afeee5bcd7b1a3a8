// returns: ["x",2]
class Album { label: Album.Label = new Album.Label("x"); }
namespace Album {
  export class Label { constructor(public name: string) {} }
  export const count = 2;
}
return [new Album().label.name, Album.count];
