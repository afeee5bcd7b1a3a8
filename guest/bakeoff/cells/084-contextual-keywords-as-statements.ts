// returns: [6,2,3,4,6]
let type = 1;
let declare: number = 2;
let abstract = 3;
let namespace = 4;
type
= 5;
declare
++type;
abstract
namespace
const interface_ = type;
return [type, declare, abstract, namespace, interface_];
