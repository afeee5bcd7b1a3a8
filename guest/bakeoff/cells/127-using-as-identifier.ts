// returns: [6,{"using":5},5]
const using: number = 5;
let r = using + 1;
const o = { using };
return [r, o, using];
